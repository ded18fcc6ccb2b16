package call

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// ErrNotSent is wrapped by the error of a Tool whose request provably did not
// leave.
var ErrNotSent = errors.New("call: nothing was sent")

// ErrUndefined says that nobody knows what a tool takes, because its server has
// not said it since this process began.
var ErrUndefined = errors.New("call: the server has not said what the tool takes")

// ErrBusy says that the tool's server is called as often as the operator allows.
var ErrBusy = errors.New("call: the server is busy")

// Tools is the catalogue.
type Tools interface {
	// Tool gives a tool that the operator allows, whether its server is there or
	// not.
	Tool(id string) (Tool, bool)
}

// Tool is one tool.
type Tool interface {
	// Check checks arguments, whose numbers are json.Number, against what the
	// server said last, which holds while it is away; ErrUndefined where it has
	// said nothing. The text of any other error names a place and a rule, and no
	// value.
	Check(arguments map[string]any) error
	// Repeatable says that the operator marked the tool idempotent or read-only:
	// it may be called again when nobody knows whether a first call did anything.
	Repeatable() bool
	// NeedsApproval says that the operator wants each call approved by a person.
	NeedsApproval() bool
	// Risk is the operator's class: low, medium or high.
	Risk() string
	// Timeout is the longest that one call may take.
	Timeout() time.Duration
	// Call makes one call, which leaves before by or not at all; a zero by is any
	// time. It ends with ctx. An error that wraps ErrNotSent says that nothing
	// left; after any other nobody knows what happened. What the tool itself calls
	// an error is a result.
	Call(ctx context.Context, arguments json.RawMessage, by time.Time) (project.Result, error)
}

// Authorizer decides by relations, as package authz writes them. Errors:
// access_denied, and dependency_unavailable where nobody answered, which is a
// refusal too.
type Authorizer interface {
	Check(ctx context.Context, subject, relation, object string) error
}

// Records reads committed records.
type Records interface {
	// Load reads one, or binding.ErrNotFound.
	Load(ctx context.Context, bindingID string) (binding.Record, error)
}

// Results keeps what is too large for an event.
type Results interface {
	// Put stores the content for the run of the envelope, once for its key and the
	// content, with the capability that the worker came with. ref leads to it.
	Put(ctx context.Context, env fence.Envelope, token string, content []byte) (ref string, err error)
}

// Effects is write 4, see binding.Effects.
type Effects interface {
	Do(ctx context.Context, g fence.Grant, eff binding.Effect, act func(context.Context) ([]byte, error)) (binding.Outcome, error)
}
