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

// Tools is the catalogue.
type Tools interface {
	// Tool gives a tool of the catalogue, if its server ever said what it is.
	// What it says last holds while the server is away.
	Tool(id string) (Tool, bool)
}

// Tool is one tool.
type Tool interface {
	// Check checks arguments, whose numbers are json.Number. The text of its error
	// names a place and a rule, and no value.
	Check(arguments map[string]any) error
	// Repeatable says that the operator marked the tool idempotent or read-only:
	// it may be called again when nobody knows whether a first call did anything.
	Repeatable() bool
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

// Effects is write 4, see binding.Effects.
type Effects interface {
	Do(ctx context.Context, g fence.Grant, eff binding.Effect, act func(context.Context) ([]byte, error)) (binding.Outcome, error)
}
