package loopback

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

// maxWholeArguments is up to what size arguments stand in tool.started: an event
// has to have room for more than them. Larger ones follow as deltas.
const maxWholeArguments = event.MaxEventBytes - 16<<10

// Call is a call that a program wants to make.
type Call struct {
	Tool harness.Tool
	// Arguments as the program sent them, later one compact JSON object.
	Arguments json.RawMessage
	// Meta is what the program says about the call, such as its own id of it.
	Meta map[string]any
}

// Gate decides on calls before they are made.
type Gate interface {
	// Admit is asked about each call before it is started.
	Admit(c Call) Admission
	// Ask says that a person has to decide on a call, which has been started under
	// that id. The call then waits until the run ends. false says that nobody can
	// be asked.
	Ask(callID string, c Call) bool
}

// Admission is what a Gate says about a call. The zero value lets it pass.
type Admission struct {
	// CallID of a call that counts as started; "" gives the call an id and starts
	// it.
	CallID string
	// Arguments in place of the program's; nil leaves those.
	Arguments json.RawMessage
	// Ask wants the call to be started and asked about.
	Ask bool
	// Refuse ends the call with this error.
	Refuse *fault.Error
}

// call makes one call and tells of it in events.
func (r *Run) call(c Call) (harness.ToolResult, error) {
	const op = "loopback.call"
	args, acceptable := object(c.Arguments)
	c.Arguments = json.RawMessage(args)
	r.mu.Lock()
	r.numbered++
	number := r.numbered
	r.mu.Unlock()
	var a Admission
	if acceptable {
		a = r.admit(c)
	}
	if a.Arguments != nil {
		c.Arguments = a.Arguments
	}
	id := a.CallID
	if id == "" {
		id = fmt.Sprintf("call-%s-%d", r.cfg.Tag, number)
		if err := r.start(id, c); err != nil {
			return harness.ToolResult{}, err
		}
	}
	switch {
	case number > r.cfg.Limits.ToolCalls:
		return r.failed(id, fault.New(fault.Capacity, op, fault.Detail("the run has used up its tool calls: answer without further ones")))
	case !acceptable:
		return r.failed(id, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("arguments: one JSON object without doubled keys")))
	case a.Refuse != nil:
		return r.failed(id, a.Refuse)
	case a.Ask:
		return r.ask(id, c, fault.New(fault.ApprovalRequired, op))
	}
	r.count(1)
	res, err := r.cfg.Tools.Call(r.ctx, harness.ToolCall{CallID: id, ToolID: c.Tool.ID, Arguments: c.Arguments})
	r.count(-1)
	switch {
	case fault.Is(err, fault.ApprovalRequired):
		return r.ask(id, c, fault.From(err, op))
	case err != nil:
		return r.failed(id, fault.From(err, op))
	}
	value, _ := event.ProjectJSON(res.Result, event.MaxResultBytes)
	return res, r.emit(event.ToolFinished{ToolCallID: id, Result: value, ResultRef: res.Ref})
}

func (r *Run) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calling += n
}

// Calling is how many calls the broker is making.
func (r *Run) Calling() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calling
}

// admit asks the gate. Without one a call that needs an approval is refused.
func (r *Run) admit(c Call) Admission {
	switch {
	case r.cfg.Gate != nil:
		return r.cfg.Gate.Admit(c)
	case c.Tool.ApprovalRequired:
		return Admission{Refuse: fault.New(fault.ApprovalRequired, "loopback.admit")}
	default:
		return Admission{}
	}
}

// ask waits for the end of the run where a person can be asked.
func (r *Run) ask(id string, c Call, required *fault.Error) (harness.ToolResult, error) {
	if r.cfg.Gate == nil || !r.cfg.Gate.Ask(id, c) {
		return r.failed(id, required)
	}
	<-r.ctx.Done()
	return harness.ToolResult{}, required
}

func (r *Run) emit(d event.Data) error { return r.cfg.Emit.Emit(r.ctx, event.Draft{Data: d}) }

// start emits tool.started with the arguments whole.
func (r *Run) start(id string, c Call) error {
	started := event.ToolStarted{ToolCallID: id, ToolName: c.Tool.ID, Arguments: event.Object(c.Arguments)}
	if len(c.Arguments) <= maxWholeArguments {
		return r.emit(started)
	}
	started.Arguments = event.EmptyObject
	if err := r.emit(started); err != nil {
		return err
	}
	for rest := string(c.Arguments); rest != ""; {
		p := event.Truncate(rest, event.MaxDeltaBytes)
		if err := r.emit(event.ToolArgumentsDelta{ToolCallID: id, Delta: p}); err != nil {
			return err
		}
		rest = rest[len(p):]
	}
	return nil
}

// failed ends a call as an error. What says that this run may do nothing more is
// kept for whoever drives it.
func (r *Run) failed(id string, f *fault.Error) (harness.ToolResult, error) {
	if err := context.Cause(r.ctx); err != nil {
		return harness.ToolResult{}, fault.From(err, "loopback.call")
	}
	switch f.Code() { //nolint:exhaustive // the others are for the model
	case fault.StaleLease, fault.Cancelled, fault.CapabilityExpired:
		r.fail(f)
		return harness.ToolResult{}, f
	}
	code := f.Code()
	if err := r.emit(event.ToolError{ToolCallID: id, Code: string(code), Message: code.Message(), Retryable: code.Retryable()}); err != nil {
		return harness.ToolResult{}, err
	}
	return harness.ToolResult{}, f
}

// object gives arguments if they are one JSON object that may stand in an event
// and be sent to the broker, else an empty one. No text at all is an object
// without keys.
func object(raw json.RawMessage) (event.Object, bool) {
	text := strings.TrimSpace(string(raw))
	if text == "" || text == "null" {
		return event.EmptyObject, true
	}
	o := strictjson.Options{MaxBytes: event.MaxArgumentsBytes, MaxDepth: event.MaxArgumentsDepth}
	var compact bytes.Buffer
	if text[0] != '{' || strictjson.Check([]byte(text), o) != nil || json.Compact(&compact, []byte(text)) != nil {
		return event.EmptyObject, false
	}
	return event.Object(compact.String()), true
}
