package stdio

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// keep commits what the program wants to be kept, once nothing of it runs.
func (t *turn) keep(ctx context.Context, revision uint64, e ending) (harness.Result, error) {
	state := append([]byte{stateFormat}, e.state...)
	if e.interrupt == nil {
		if err := t.Thread.Commit(ctx, t.Preset.codec(), revision, state); err != nil {
			return harness.Result{}, err
		}
		return harness.Result{StopReason: e.stopReason}, nil
	}
	if err := t.request(ctx, e.interrupt); err != nil {
		return harness.Result{}, err
	}
	return harness.Result{}, t.Thread.Interrupt(ctx, t.Preset.codec(), revision, state)
}

// stateFormat stands before a program's state: a snapshot has at least one byte,
// and a state may have none.
const stateFormat = 1

// stateOf gives the program's state of a head.
func stateOf(h harness.Head) ([]byte, error) {
	switch {
	case h.Revision == 0:
		return nil, nil
	case len(h.Payload) == 0 || h.Payload[0] != stateFormat:
		return nil, fault.Wrap(errors.New("thread state of another format"), fault.PersistenceFailed, "stdio.state")
	}
	return h.Payload[1:], nil
}

// request emits the interrupt, and the calls that it names.
func (t *turn) request(ctx context.Context, m *interruptMessage) error {
	policy := t.construction.Interrupts
	asked := event.InterruptRequested{InterruptID: interruptID(t.runID), AgentID: t.construction.AgentID}
	switch {
	case m.Form != nil && len(m.Approvals) == 0:
		if !policy.FormInput {
			return broke(errNoApproval)
		}
		asked.InterruptType, asked.Prompt, asked.Fields = event.InterruptFormInput, m.Form.Prompt, m.Form.Fields
	case m.Form == nil && len(m.Approvals) > 0:
		if !policy.ToolApproval {
			return broke(errNoApproval)
		}
		asked.InterruptType = event.InterruptToolApproval
		for _, a := range m.Approvals {
			if err := t.startApproved(ctx, a); err != nil {
				return err
			}
			asked.ToolApprovals = append(asked.ToolApprovals, a.event())
		}
	default:
		return brokef("an interrupt is a form or has approvals")
	}
	return t.emit.Emit(ctx, event.Draft{Data: asked})
}

func (a approval) event() event.ToolApproval {
	allowed := a.AllowedDecisions
	if len(allowed) == 0 {
		allowed = []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}
	}
	return event.ToolApproval{ToolCallID: a.ToolCallID, ToolName: a.ToolID, ToolArgs: a.Arguments, AllowedDecisions: allowed}
}

// startApproved opens a call that a person is to decide on, unless it is one of
// the program's own that is open already.
func (t *turn) startApproved(ctx context.Context, a approval) error {
	switch {
	case t.brokered[a.ToolCallID]:
		return brokef("an approval of a call that was made")
	case t.drafted[a.ToolCallID]:
		return nil
	case len(a.Arguments) > maxArguments:
		return fault.New(fault.RequestTooLarge, "stdio.interrupt", fault.Detail("approvals[].arguments: at most 240 KiB"))
	}
	return t.emit.Emit(ctx, event.Draft{Data: event.ToolStarted{ToolCallID: a.ToolCallID, ToolName: a.ToolID, Arguments: a.Arguments}})
}

// interruptID is the id of the one interrupt that a run can have.
func interruptID(runID string) string {
	sum := sha256.Sum256([]byte(runID))
	return "interrupt-" + hex.EncodeToString(sum[:8])
}
