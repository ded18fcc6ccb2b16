package native

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

const (
	// maxAsked is how many calls one interrupt asks about: what waits, runs and
	// delegates is never more than a run may have open.
	maxAsked = 16
	// maxAskedBytes bounds the arguments in an interrupt, with askedOverhead for
	// each call: it is one event.
	maxAskedBytes = event.MaxEventBytes - 32<<10
	askedOverhead = 1 << 10
	// maxSpaces is how many subagents are at work at once. The other half of the
	// namespaces that may be open is for agents to which calls delegate.
	maxSpaces = event.MaxOpenNamespaces / 2
)

// room is what is left of what a run can ask and open at once.
type room struct {
	mu                   sync.Mutex
	asked, bytes, spaces int
}

func (r *room) ask(bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == maxAsked || r.bytes+bytes+askedOverhead > maxAskedBytes {
		return false
	}
	r.asked++
	r.bytes += bytes + askedOverhead
	return true
}

func (r *room) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spaces == maxSpaces {
		return false
	}
	r.spaces++
	return true
}

func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spaces--
}

// askApproval leaves a call open until a person was asked.
func (l *level) askApproval(ctx context.Context, o *openCall, c toolCall) error {
	const op = "native.approval"
	switch {
	case !l.construction.Interrupts.ToolApproval:
		return l.failed(ctx, o, fault.New(fault.ToolDenied, op,
			fault.Detail("the call needs an approval, and nobody can be asked: go on without it")))
	case !l.room.ask(len(c.Arguments)):
		return l.failed(ctx, o, fault.New(fault.Capacity, op,
			fault.Detail("more than can be asked about at once: call fewer tools, with less, that need an approval")))
	}
	o.Progress = callAsked
	return nil
}

// decisions are what a person decided, by call.
type decisions struct {
	harness.Decision

	byCall  map[string]harness.ToolDecision
	carried map[string]bool
}

func newDecisions(d harness.Decision) *decisions {
	out := &decisions{Decision: d, byCall: make(map[string]harness.ToolDecision), carried: make(map[string]bool)}
	for _, t := range d.Tools {
		out.byCall[t.ToolCallID] = t
	}
	for _, a := range d.Interrupt.ToolApprovals {
		if d.Dismissed {
			out.byCall[a.ToolCallID] = harness.ToolDecision{ToolCallID: a.ToolCallID, Decision: event.DecisionReject}
		}
	}
	for _, id := range d.Carried {
		out.carried[id] = true
	}
	return out
}

// carryOut does what a person decided about a call.
func (l *level) carryOut(ctx context.Context, o *openCall, c toolCall, t *tool) error {
	const op = "native.carryOut"
	d, decided := l.decided.byCall[c.CallID]
	switch {
	case !decided:
		return fault.Wrap(fmt.Errorf("no decision on call %s", c.CallID), fault.InterruptConflict, op)
	case d.Decision == event.DecisionReject:
		return l.failed(ctx, o, fault.New(fault.ToolDenied, op, fault.Detail("a person did not allow this call: do not make it again unless you are told to")))
	case t == nil || t.kind != toolBrokered && t.kind != toolBuiltin:
		return l.failed(ctx, o, fault.New(fault.ToolNotAllowed, op))
	case l.toolCalls.Add(1) > int64(l.construction.Limits.ToolCalls):
		return l.failed(ctx, o, fault.New(fault.Capacity, op, fault.Detail("the run has used up its tool calls: answer without further ones")))
	}
	changed := ""
	if d.Decision == event.DecisionEdit {
		args, ok := objectOf(string(d.Arguments))
		if !ok {
			return l.failed(ctx, o, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("edited arguments: one JSON object without doubled keys")))
		}
		c.Arguments = json.RawMessage(args)
		changed = "[A person changed the arguments before the call was made, to " + string(args) + "]\n"
	}
	err := l.carry(ctx, o, c, t)
	if fault.Is(err, fault.ApprovalRequired) { // once is enough
		err = l.failed(ctx, o, err)
	}
	if err != nil {
		return err
	}
	o.Text = changed + o.Text
	return nil
}
