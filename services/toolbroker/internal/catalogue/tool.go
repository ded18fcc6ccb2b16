package catalogue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/pkg/toolschema"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/credential"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// Bounds of what a server says of a tool, in bytes.
const (
	maxTool        = 256 << 10
	maxToolDepth   = 128
	maxDescription = 4 << 10
)

// Tool is one tool that the operator allows. It implements call.Tool.
type Tool struct {
	id, name   string
	offered    string
	readOnly   bool
	repeatable bool
	approval   bool
	risk       string
	timeout    time.Duration
	idle       time.Duration // 0 is no bound
	maxResult  int
	server     *server

	// definition is what the server said last; nil before it said anything.
	definition atomic.Pointer[definition]
}

// definition is what a server says of a tool.
type definition struct {
	description string
	schema      *toolschema.Schema
	// output is what structured content has to fit; nil where the server gives no
	// schema for it, or none that can be used.
	output *toolschema.Schema
}

var _ call.Tool = (*Tool)(nil)

func newTool(s *server, name string) *Tool {
	o := s.cfg.ToolOptions[name]
	t := &Tool{
		id: toolID(s.cfg.Namespace, name), name: name, server: s, readOnly: s.cfg.ReadOnly || o.ReadOnly,
		risk:      cmp.Or(o.Risk, s.cfg.Risk, RiskMedium),
		maxResult: cmp.Or(o.MaxResultBytes, s.cfg.MaxResultBytes, project.MaxBytes),
		approval:  cmp.Or(o.Approval, s.cfg.Approval) == ApprovalAlways,
		timeout:   defaultTimeout,
	}
	// They were validated.
	if d, err := parseTimeout(cmp.Or(o.Timeout, s.cfg.Timeout)); err == nil && d > 0 {
		t.timeout = d
	}
	if d, err := parseTimeout(cmp.Or(o.IdleTimeout, s.cfg.IdleTimeout)); err == nil {
		t.idle = d
	}
	t.repeatable = t.readOnly || o.Idempotent
	return t
}

// Check implements call.Tool.
func (t *Tool) Check(arguments map[string]any) error {
	d := t.definition.Load()
	if d == nil {
		return call.ErrUndefined
	}
	return d.schema.Check(arguments)
}

// Repeatable implements call.Tool.
func (t *Tool) Repeatable() bool { return t.repeatable }

// NeedsApproval implements call.Tool.
func (t *Tool) NeedsApproval() bool { return t.approval }

// Risk implements call.Tool.
func (t *Tool) Risk() string { return t.risk }

// Timeout implements call.Tool.
func (t *Tool) Timeout() time.Duration { return t.timeout }

// Call implements call.Tool.
func (t *Tool) Call(ctx context.Context, on call.Behalf, arguments json.RawMessage, by time.Time, in *call.Input) (call.Reply, error) {
	done, err := t.server.turns.take(ctx, by)
	if err != nil {
		return call.Reply{}, err
	}
	defer done()
	live := t.server.offers(t)
	if live == nil {
		return call.Reply{}, fmt.Errorf("%w: the server is away", call.ErrNotSent)
	}
	if err := t.recheck(arguments); err != nil {
		return call.Reply{}, fmt.Errorf("%w: the tool takes other arguments now: %w", call.ErrNotSent, err)
	}
	session, err := t.server.on(ctx, live, on, by)
	if err != nil {
		return call.Reply{}, err
	}
	defer session.release()
	if on.Assert != nil { // a token may have to be fetched for this very request
		ctx = credential.WithAssert(ctx, on.Assert)
	}
	opts := []mcpcall.Option{mcpcall.WithIdle(t.idle)}
	if in != nil {
		opts = append(opts, mcpcall.WithInput(mcpcall.Input{
			Key: in.Asked.Key, State: string(in.Asked.State), Params: in.Asked.Params, Action: in.Action, Content: in.Content,
		}))
	}
	a, err := session.peer.Call(ctx, t.name, arguments, by, opts...)
	if err != nil && ctx.Err() == nil {
		t.server.suspect()
	}
	switch {
	case errors.Is(err, mcpcall.ErrNotSent):
		return call.Reply{}, fmt.Errorf("%w: %w", call.ErrNotSent, err)
	case err != nil:
		return call.Reply{}, err
	default:
		return t.reply(a, session.peer.Version(), session.redactor()), nil
	}
}

// recheck checks arguments once more that were checked when they came: the tool
// may have changed since.
func (t *Tool) recheck(arguments json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return errors.New("arguments: not an object")
	}
	return t.Check(object)
}

// define reads what a server says of a tool. Fields that do not concern us may be
// anything.
func define(raw json.RawMessage, redact project.Redactor) (name string, d *definition, err error) {
	// Exact keys, and each once: what is decided on and what is shown must be one.
	// Names in a schema may differ in case only, and text may hold what is cleaned
	// below.
	var fields map[string]json.RawMessage
	o := strictjson.Options{MaxBytes: maxTool, MaxDepth: maxToolDepth, AllowCaseVariants: true, AllowControls: true}
	if err := strictjson.Unmarshal(raw, &fields, o); err != nil {
		return "", nil, err
	}
	if err := json.Unmarshal(fields["name"], &name); err != nil {
		return "", nil, errors.New("a tool without a name")
	}
	var description string
	if json.Unmarshal(fields["description"], &description) != nil {
		description = ""
	}
	schema, err := toolschema.Compile(fields["inputSchema"])
	if err != nil {
		return name, nil, err
	}
	description = event.Truncate(event.SanitizeText(redact.Cut(description)), maxDescription)
	var output *toolschema.Schema
	if raw := fields["outputSchema"]; len(raw) > 0 {
		if output, err = toolschema.Compile(raw); err != nil {
			output = nil // it takes nothing out: the tool can be called without it
		}
	}
	return name, &definition{description, schema, output}, nil
}
