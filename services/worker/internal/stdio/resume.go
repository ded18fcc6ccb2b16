package stdio

import (
	"context"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// Resume runs the turn in which a decision is carried out. Calls that were
// rejected end before the program hears of it; the others it may make, and no
// others under their ids.
func (r *runtime) Resume(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	t := r.turn(d.RunID, d.Uploads, f, emit)
	return t.play(ctx, func(ctx context.Context, state []byte) (any, error) {
		said, err := t.decide(ctx, d)
		if err != nil {
			return nil, err
		}
		return resumeRequest{
			Type: "resume", thread: newThread(d.RunID, d.ConversationID, d.Deadline, state, d.Uploads),
			Interrupt: d.Interrupt, Revision: d.Revision, Decision: said,
		}, nil
	})
}

// decide carries over what was decided on each call.
func (t *turn) decide(ctx context.Context, d harness.Decision) (decision, error) {
	said := decision{Form: d.Form, Dismissed: d.Dismissed}
	by := make(map[string]harness.ToolDecision, len(d.Tools))
	for _, x := range d.Tools {
		by[x.ToolCallID] = x
		said.Tools = append(said.Tools, toolDecision{x.ToolCallID, x.Decision, x.Arguments})
	}
	for _, a := range d.Interrupt.ToolApprovals {
		if err := t.carryOver(ctx, a, by[a.ToolCallID]); err != nil {
			return decision{}, err
		}
	}
	for _, id := range d.Carried {
		t.drafted[id] = true // delegates to a subagent of the program itself
	}
	return said, nil
}

func (t *turn) carryOver(ctx context.Context, a event.ToolApproval, x harness.ToolDecision) error {
	args := a.ToolArgs
	switch x.Decision {
	case event.DecisionApprove:
	case event.DecisionEdit:
		args = event.Object(x.Arguments)
	default: // rejected or dismissed: nothing of it happens
		t.brokered[a.ToolCallID] = true
		denied := event.ToolError{ToolCallID: a.ToolCallID, Code: string(fault.ToolDenied), Message: "A person did not allow this call."}
		return t.emit.Emit(ctx, event.Draft{Data: denied})
	}
	if _, offered := t.tools[a.ToolName]; offered {
		t.brokered[a.ToolCallID], t.decided[a.ToolCallID] = true, args
		return nil
	}
	t.drafted[a.ToolCallID] = true // a tool of the program itself
	return nil
}
