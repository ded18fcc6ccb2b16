package native

import (
	"context"
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// toolQuestion is what a tool asks the user before it goes on. The call that asked
// has ended in the log, and the one that brings the answer is a call of its own,
// under the id of the interrupt; to the model both are one.
type toolQuestion struct {
	// Interrupt is the broker's, word for word.
	Interrupt json.RawMessage `json:"interrupt"`
	// RunID and CallID are of the call that asked, and Arguments what it was made
	// with, which a person may have edited.
	RunID     string          `json:"run_id"`
	CallID    string          `json:"call_id"`
	Arguments json.RawMessage `json:"arguments"`
}

func (q *toolQuestion) interrupt() (event.InterruptRequested, error) {
	if q == nil {
		return event.InterruptRequested{}, errors.New("a call that waits for the answer to no question")
	}
	return event.DecodeInterrupt(q.Interrupt, event.Bounds{})
}

// brokered makes a call of the broker's and ends it, unless its tool asks the user:
// then it waits for the answer. A call that needs an approval is an error.
func (l *level) brokered(ctx context.Context, o *openCall, c toolCall, t *tool) error {
	res, err := l.Tools.Call(ctx, harness.ToolCall{CallID: c.CallID, ToolID: t.id, Arguments: c.Arguments})
	if fault.Is(err, fault.ApprovalRequired) {
		return err
	}
	if err != nil {
		return l.failed(ctx, o, err)
	}
	if err := l.ended(ctx, o, answered(res), nil); err != nil {
		return err
	}
	return l.asks(o, c.CallID, c.Arguments, res)
}

// asks lets an open call wait for the user, where its tool asks and somebody can be
// asked. Otherwise the model reads that it has not done what was asked.
func (l *level) asks(o *openCall, callID string, arguments json.RawMessage, res harness.ToolResult) error {
	if res.Asks == nil || !l.construction.Interrupts.FormInput {
		return nil
	}
	body, err := event.InterruptBody(*res.Asks)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "native.asks")
	}
	o.Progress, o.Question = callInput, &toolQuestion{Interrupt: body, RunID: l.runID, CallID: callID, Arguments: arguments}
	return nil
}

// bring makes the call with the answer, where this run has it: a form asks for one
// tool at a time, and the others wait for theirs.
func (l *level) bring(ctx context.Context, o *openCall, c toolCall, t *tool) error {
	const op = "native.bring"
	q, err := o.Question.interrupt()
	if err != nil {
		return damaged(err)
	}
	if l.decided == nil || l.decided.Interrupt.InterruptID != q.InterruptID {
		return nil
	}
	asked := *o.Question
	c.CallID, c.Arguments = q.InterruptID, asked.Arguments
	again := openCall{ID: q.InterruptID}
	toolID := namespace + "unknown"
	if t != nil {
		toolID = t.id
	}
	if err := l.started(ctx, c, toolID, ""); err != nil {
		return err
	}
	switch {
	case t == nil || t.kind != toolBrokered:
		err = l.failed(ctx, &again, fault.New(fault.ToolNotAllowed, op))
	case l.toolCalls.Add(1) > int64(l.construction.Limits.ToolCalls):
		err = l.failed(ctx, &again, fault.New(fault.Capacity, op, fault.Detail("the run has used up its tool calls: answer without further ones")))
	default:
		err = l.answer(ctx, &again, c, t, asked)
	}
	again.ID = o.ID
	*o = again
	return err
}

func (l *level) answer(ctx context.Context, o *openCall, c toolCall, t *tool, asked toolQuestion) error {
	res, err := l.Tools.Call(ctx, harness.ToolCall{
		CallID: c.CallID, ToolID: t.id, Arguments: c.Arguments,
		Answer: &harness.ToolAnswer{RunID: asked.RunID, CallID: asked.CallID, Form: l.decided.Form, Dismissed: l.decided.Dismissed},
	})
	if err != nil {
		return l.failed(ctx, o, err)
	}
	if err := l.ended(ctx, o, answered(res), nil); err != nil {
		return err
	}
	return l.asks(o, c.CallID, c.Arguments, res)
}

// waiting is the first call, here and below, whose tool asks the user, and the
// level that it stands in.
func (l *level) waiting() (*level, *toolQuestion) {
	for i := range l.conv.Open {
		o := &l.conv.Open[i]
		switch o.Progress { //nolint:exhaustive // the others do not wait for an answer
		case callInput:
			return l, o.Question
		case callDelegated:
			if who, q := l.below[o.ID].waiting(); q != nil {
				return who, q
			}
		}
	}
	return nil, nil
}
