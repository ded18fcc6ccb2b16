package call

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/toolbroker/internal/elicit"
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
	// Prepare makes ready, for as long as ctx allows, what a call on somebody's behalf
	// needs besides and what may take longer than the time in which one has to begin.
	// It is a courtesy: that it failed shows in Call.
	Prepare(ctx context.Context, on Behalf)
	// Call makes one call on somebody's behalf, which leaves before by or not at all;
	// a zero by is any time. in answers what the tool asked in an earlier call; nil answers nothing.
	// It ends with ctx. An error that wraps ErrNotSent says that nothing left; after
	// any other nobody knows what happened. What the tool itself calls an error is a
	// result.
	Call(ctx context.Context, on Behalf, arguments json.RawMessage, by time.Time, in *Input) (Reply, error)
}

// Behalf is for whom a call is made, out of the committed record.
type Behalf struct {
	Subject, Organization string
	// Assert has the capability service vouch for the subject to a token endpoint, for
	// as long as the run of the call is the committed one. It is a function because
	// fmt prints fields without asking.
	Assert func(ctx context.Context, tokenURL string) (assertion string, err error)
}

// Reply is what a tool answered.
type Reply struct {
	project.Result

	// Asked is set where the tool has to be called again with an answer from the
	// user; Result then says so to a model that cannot ask.
	Asked *Asked
	// Progress is how many notifications of progress came meanwhile.
	Progress int
}

// Asked is a question of a tool's server.
type Asked struct {
	// Question is what a person is shown.
	Question elicit.Question
	// Params of the question as they came, and the key and the state to come back
	// with; without a key it was asked in the midst of a call.
	Params json.RawMessage
	Key    string
	State  []byte
}

// Input is the answer to a question.
type Input struct {
	Asked   Asked
	Action  elicit.Action
	Content json.RawMessage
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
	// LoadRow reads a row of the ledger, or binding.ErrNotFound.
	LoadRow(ctx context.Context, key binding.RowKey) (binding.Row, error)
}

// Results keeps what is too large for an event.
type Results interface {
	// Put stores the content for the run of the envelope, once for its key and the
	// content, with the capability that the worker came with. ref leads to it.
	Put(ctx context.Context, env fence.Envelope, token string, content []byte) (ref string, err error)
}

// Assertions vouches for subjects.
type Assertions interface {
	// Assert gives an assertion about the committed subject of the envelope's run, for
	// one token endpoint, with the capability that the worker came with.
	Assert(ctx context.Context, env fence.Envelope, token, tokenURL string) (assertion string, err error)
}

// Effects is write 4, see binding.Effects.
type Effects interface {
	Do(ctx context.Context, g fence.Grant, eff binding.Effect, act func(context.Context) ([]byte, error)) (binding.Outcome, error)
}
