// Package delegate has the built-in tool delegate: it lets another agent of the
// operator work on a task, and gives what that agent said.
//
// The control plane decides whether the agent may be delegated to, and runs it;
// see its package delegation. Here is what a tool has to be: a definition, one
// answer, and what became of a request that was not answered.
package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// Tool is the name of the tool.
const Tool = "delegate"

// definition is what a server would say of the tool. Which agents there are is for
// the control plane to say: each agent may delegate to others.
const definition = `{"name":"` + Tool + `",` +
	`"description":"Lets another agent work on a task and gives its answer. It sees nothing of this conversation: tell it all that it has to know.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"agent_id":{"type":"string","minLength":1,"maxLength":64,"description":"Which agent is to work."},` +
	`"message":{"type":"string","minLength":1,"maxLength":262144,"description":"The task, with all that is needed for it."}},` +
	`"required":["agent_id","message"],"additionalProperties":false}}`

// Runs starts runs of other agents; the control plane does.
type Runs interface {
	// Delegate starts a run for the call of the envelope. It returns once the run is
	// committed. Errors before that are *fault.Error: ErrUnreachable is wrapped where
	// nothing was sent. The stream ends with ctx.
	Delegate(ctx context.Context, env fence.Envelope, agentID, message string) (Run, error)
}

// Run is a delegated run.
type Run interface {
	// ID of the run, and the name of its agent for people.
	ID() string
	AgentName() string
	// Next gives its next event; the last is the terminal.
	Next() (event.Event, error)
	Close() error
}

// ErrUnreachable says that nothing was sent to the control plane.
var ErrUnreachable = errors.New("delegate: the control plane cannot be reached")

// Delegator is the tool in the place of a server.
type Delegator struct {
	runs Runs
	once sync.Once
	done chan struct{}
}

// New makes a Delegator.
func New(r Runs) *Delegator { return &Delegator{runs: r, done: make(chan struct{})} }

// Tools gives the one tool.
func (*Delegator) Tools(context.Context) (mcpcall.List, error) {
	return mcpcall.List{Tools: []json.RawMessage{json.RawMessage(definition)}, TTL: 24 * time.Hour}, nil
}

// Changed is never told anything.
func (*Delegator) Changed() <-chan struct{} { return nil }

// Done is closed by Close.
func (d *Delegator) Done() <-chan struct{} { return d.done }

// Version is that of no protocol.
func (*Delegator) Version() string { return "builtin" }

// Close has nothing to wait for: each call ends with its context.
func (d *Delegator) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

// Call implements what mcpcall.Peer promises. The context has to be of a call, see
// call.WithinOf.
func (d *Delegator) Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time, _ ...mcpcall.Option) (mcpcall.Answer, error) {
	within, ok := call.WithinOf(ctx)
	if err := ctx.Err(); err != nil || !ok {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNotSent, errors.Join(err, errNoCall(ok)))
	}
	if !by.IsZero() && !time.Now().Before(by) {
		return mcpcall.Answer{}, fmt.Errorf("%w: it was too late", mcpcall.ErrNotSent)
	}
	var args struct {
		AgentID string `json:"agent_id"`
		Message string `json:"message"`
	}
	if tool != Tool || json.Unmarshal(arguments, &args) != nil {
		return mcpcall.Answer{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "agent_id and message: texts"}}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run, err := d.runs.Delegate(ctx, within.Envelope, args.AgentID, args.Message)
	if err != nil {
		return refused(ctx, args.AgentID, err)
	}
	return work(ctx, within, args.AgentID, run)
}

func errNoCall(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("delegate: not within a call")
}

// refused is a run that was not started, as far as that is known. What the caller
// can do something about is an answer.
func refused(ctx context.Context, agentID string, err error) (mcpcall.Answer, error) {
	if errors.Is(err, ErrUnreachable) {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNotSent, err)
	}
	if ctx.Err() != nil {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNoAnswer, context.Cause(ctx))
	}
	f := fault.From(err, "delegate.refused")
	switch f.Code() {
	case fault.NotFound, fault.CapabilityScope, fault.InvalidRequest, fault.AccessDenied, fault.AlreadyRunning, fault.IdempotencyConflict,
		fault.RateLimited, fault.Capacity, fault.RequestTooLarge:
		text := f.Code().Message()
		if f.Detail() != "" {
			text += " (" + f.Detail() + ")"
		}
		return answer(agentID, "", event.NamespaceError, "The agent was not started. "+text)
	default:
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNoAnswer, f)
	}
}

// answer is a result in the form of a tools/call.
func answer(agentID, runID string, outcome event.NamespaceOutcome, text string) (mcpcall.Answer, error) {
	structured := map[string]string{"agent_id": agentID, "outcome": string(outcome)}
	if runID != "" {
		structured["run_id"] = runID
	}
	raw, err := json.Marshal(map[string]any{
		"content": []map[string]string{{"type": "text", "text": text}}, "structuredContent": structured, "isError": outcome != event.NamespaceSuccess,
	})
	if err != nil {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNoAnswer, err)
	}
	return mcpcall.Answer{Result: raw}, nil
}
