// Package stdio is the adapter of programs that are written for it: any program
// that reads one JSON request per line on its standard input and writes one JSON
// message per line on its standard output can be a harness, in any language. The
// lines are version 1 of the line protocol, docs/adapters.md and the schemas
// beside it.
//
// A program is started for each turn and ended after it: what was started in a
// run does not outlive it (Sandbox Worker Protocol v1, fencing, "Inside the
// sandbox"). What it remembers is what it committed. Everything that it writes is
// untrusted, and whatever that is, the run has one clean end.
package stdio

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

// ID of the adapter, its version, and the version of the line protocol.
const (
	ID       = "stdio"
	Version  = "1.0.0"
	Protocol = 1
)

// Config of an Adapter.
type Config struct {
	// World is where the program runs. The adapter ends what runs there, and does
	// not close it.
	World hosted.World
	// Preset says what to run; see ParsePreset.
	Preset Preset
	// Workspace is the worker's own folder in which the binding's manifests were
	// materialized; they are copied into the world. "" copies nothing.
	Workspace string
	// Endpoint is where the program reaches the model; nil gives it none.
	Endpoint Endpoint
	Logger   *slog.Logger
}

// Endpoint is a model endpoint on the loopback of the world.
type Endpoint interface {
	// Open lets requests for the model through until Close, as many as the limits
	// of the run allow, and refuses all others.
	Open(ctx context.Context, m harness.Model, l harness.Limits) (Access, error)
}

// Access is how a program uses the model in one run.
type Access struct {
	// BaseURL ends in /v1, as clients of the OpenAI wires want it; RootURL is the
	// same without that. Neither ends in a slash.
	BaseURL, RootURL string
	// Key goes with each request. It is worth nothing outside of the run.
	Key string
	// Close ends the access, and what is under way.
	Close func()
}

// Adapter is the stdio adapter. It is safe for concurrent use, but its world is
// one: a worker has one runtime.
type Adapter struct {
	cfg     Config
	options *jsonschema.Schema
	// maxLines of a turn.
	maxLines int
}

// New makes the adapter. The preset comes from ParsePreset.
func New(cfg Config) (*Adapter, error) {
	schema, err := compile(cfg.Preset.optionsSchema())
	if err != nil {
		return nil, fmt.Errorf("preset: options_schema: %w", err)
	}
	return &Adapter{cfg: cfg, options: schema, maxLines: maxLines}, nil
}

func compile(text json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	const name = "options.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is fetched
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

// Descriptor of the adapter.
func (a *Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID: ID, AdapterVersion: Version, ExecutionMode: "sandbox_pod",
		OptionsSchema: a.cfg.Preset.optionsSchema(), Capabilities: capabilities(a.cfg.Preset.Unsupported),
	}
}

// Health has no side effects: whether the program starts is seen in a turn.
func (a *Adapter) Health(ctx context.Context) error {
	if _, err := a.cfg.World.Limits(ctx); err != nil {
		return fault.Wrap(err, fault.SandboxNotReady, "stdio.Health")
	}
	return nil
}

// Initialize checks the options by the preset's schema. No program is started.
func (a *Adapter) Initialize(_ context.Context, c harness.Construction) (harness.Runtime, error) {
	const op = "stdio.Initialize"
	if len(c.Options) == 0 {
		c.Options = json.RawMessage(`{}`)
	}
	if err := strictjson.Check(c.Options, strictjson.Options{}); err != nil {
		return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, op, fault.Detail("harness_options: "+err.Error()))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Options))
	if err == nil {
		err = a.options.Validate(doc)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, op, fault.Detail("harness_options: not what the program's schema takes"))
	}
	rt := &runtime{Config: a.cfg, maxLines: a.maxLines, construction: c, tools: make(map[string]harness.Tool, len(c.Tools))}
	for _, t := range c.Tools {
		rt.tools[t.ID] = t
	}
	return rt, nil
}

// runtime holds what bind gave. Everything else of a turn lives in the turn; there
// is one at a time.
type runtime struct {
	Config
	maxLines     int
	construction harness.Construction
	// tools by id.
	tools map[string]harness.Tool
}

// Cleanup ends every process of the world and empties its folders.
func (r *runtime) Cleanup(ctx context.Context) error {
	if err := r.World.Reset(ctx); err != nil {
		return fault.From(err, "stdio.Cleanup")
	}
	return nil
}
