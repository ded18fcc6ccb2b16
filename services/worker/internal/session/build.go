package session

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/toolschema"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/middleware"
)

// undoTimeout bounds giving up what was built for a bind that failed.
const undoTimeout = 5 * time.Second

// build makes of the construction data what the worker works with. What fails
// leaves nothing behind.
func (s *Session) build(ctx context.Context, b Bind, connect func() (Connector, error)) (_ built, err error) {
	const op = "session.build"
	if why := s.desc.RawCredential; why != "" {
		return built{}, fault.New(fault.HarnessOptionsInvalid, op,
			fault.Detail("agent.harness: it needs a raw credential inside the sandbox, which no worker gets: "+why))
	}
	var parts built
	if parts.policy, err = middleware.New(b.Middleware); err != nil {
		return built{}, err
	}
	if parts.schemas, err = compile(b.Construction.Tools); err != nil {
		return built{}, err
	}
	if err := b.Manifests.Check(); err != nil {
		return built{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, parts.undo(ctx))
		}
	}()
	if parts.connector, err = connect(); err != nil {
		return built{}, err
	}
	if parts.manifest, err = s.materialize(ctx, b, parts.connector); err != nil {
		return built{}, err
	}
	construction := b.Construction
	construction.Manifest = parts.manifest.Files
	if parts.runtime, err = s.initialize(ctx, construction); err != nil {
		return built{}, err
	}
	return parts, nil
}

// undo gives up what was built, in the opposite order.
func (p built) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return p.close(ctx)
}

// close cleans the harness up and gives up what it had.
func (p built) close(ctx context.Context) error {
	var errs []error
	if p.runtime != nil {
		errs = append(errs, cleanup(ctx, p.runtime))
	}
	errs = append(errs, p.manifest.Remove())
	if p.connector != nil {
		p.connector.Close()
	}
	return errors.Join(errs...)
}

// compile makes the schemas that edited arguments have to fit.
func compile(tools []harness.Tool) (map[string]*toolschema.Schema, error) {
	out := make(map[string]*toolschema.Schema, len(tools))
	for _, t := range tools {
		schema, err := toolschema.Compile(t.InputSchema)
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidRequest, "session.compile", fault.Detail("tools[].input_schema: cannot be used"))
		}
		out[t.ID] = schema
	}
	return out, nil
}

// materialize reads the manifests with the tokens of the run that the worker is
// bound for.
func (s *Session) materialize(ctx context.Context, b Bind, c Connector) (*manifest.Materialized, error) {
	if b.Manifests.Empty() {
		return &manifest.Materialized{}, nil
	}
	facades, err := c.Connect(b.Envelope, b.Tokens, nil)
	if err != nil {
		return nil, err
	}
	return manifest.Materialize(ctx, s.cfg.Workspace, b.Manifests, facades.Files)
}

// initialize turns a panic of the adapter into an error.
func (s *Session) initialize(ctx context.Context, c harness.Construction) (runtime harness.Runtime, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v, "session.initialize")
		}
	}()
	return s.cfg.Adapter.Initialize(ctx, c)
}
