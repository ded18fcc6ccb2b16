package native

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// work takes the open calls of an answer as far as they go, some at once. It says
// whether any of them waits for a person. What a tool says, also that it failed,
// is for the model; only what ends the run is an error.
func (l *level) work(ctx context.Context, a answer) (waits bool, err error) {
	const op = "native.work"
	g, gctx := errgroup.WithContext(ctx)
	for i := range l.conv.Open {
		o, c := &l.conv.Open[i], a.calls[i]
		t := l.agent.tools[c.Name]
		if o.Progress == callDone || l.lastForm(i, t) {
			continue
		}
		release, serr := l.slot(gctx, t)
		if serr != nil {
			break // what ended the others ends this one
		}
		g.Go(func() (err error) {
			defer release()
			defer func() { // the worker recovers only in the goroutine that it gave
				if v := recover(); v != nil {
					err = fault.Wrap(fmt.Errorf("panic of type %T\n%s", v, debug.Stack()), fault.Internal, op)
				}
			}()
			return l.step(gctx, o, c, t, a.messageID)
		})
	}
	err = g.Wait()
	switch {
	case ctx.Err() != nil:
		return false, fault.From(ctx.Err(), op)
	case err != nil:
		return false, err
	case l.anyOpen(): // the form comes once they are answered
		return true, nil
	}
	return l.askForm(ctx, a)
}

// slot waits for room. Calls begin in their order.
func (l *level) slot(ctx context.Context, t *tool) (release func(), err error) {
	slots := l.slots
	if t != nil && t.kind == toolSubagent {
		slots = l.agents[l.agent.depth]
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fault.From(ctx.Err(), "native.slot")
	}
}

// anyOpen says whether a call waits for a person, the form apart, which has not
// begun.
func (l *level) anyOpen() bool {
	return slices.ContainsFunc(l.conv.Open, func(o openCall) bool {
		return o.Progress == callAsked || o.Progress == callInput || o.Progress == callDelegated
	})
}

// step takes one call as far as it goes.
func (l *level) step(ctx context.Context, o *openCall, c toolCall, t *tool, parent string) error {
	switch o.Progress {
	case callAsked:
		return l.carryOut(ctx, o, c, t)
	case callInput:
		return l.bring(ctx, o, c, t)
	case callDelegated:
		return l.reenter(ctx, o, c, t)
	default:
		return l.call(ctx, o, c, t, parent)
	}
}

// call makes one call and tells of it in events, which come from the broker's
// answers and from nothing else.
func (l *level) call(ctx context.Context, o *openCall, c toolCall, t *tool, parent string) error {
	const op = "native.call"
	if t == nil || c.madeUp {
		o.result("There is no tool of this name. Call one that was offered.", true)
		return l.warn(ctx, "unknown_tool", "The model called a tool that was not offered.")
	}
	if err := l.started(ctx, c, t.id, parent); err != nil {
		return err
	}
	switch {
	case l.toolCalls.Add(1) > int64(l.construction.Limits.ToolCalls):
		return l.failed(ctx, o, fault.New(fault.Capacity, op, fault.Detail("the run has used up its tool calls: answer without further ones")))
	case c.refused:
		return l.failed(ctx, o, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("arguments: one JSON object without doubled keys")))
	case t.approval:
		return l.askApproval(ctx, o, c)
	}
	switch t.kind {
	case toolSubagent:
		return l.delegateTo(ctx, o, c, t.sub)
	case toolForm:
		return l.failed(ctx, o, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail(t.Name+": the last call of an answer")))
	default:
		err := l.carry(ctx, o, c, t)
		if fault.Is(err, fault.ApprovalRequired) {
			return l.askApproval(ctx, o, c)
		}
		return err
	}
}

// carry makes the call of a tool of the broker or of the harness itself, and ends
// it. Either may want a person's approval: approval_required, with nothing done.
func (l *level) carry(ctx context.Context, o *openCall, c toolCall, t *tool) error {
	if t.kind != toolBuiltin {
		return l.brokered(ctx, o, c, t)
	}
	p, err := t.act(ctx, l.run, c)
	if fault.Is(err, fault.ApprovalRequired) {
		return err
	}
	return l.ended(ctx, o, p, err)
}

// maxWholeArguments is up to what size arguments stand in tool.started: an event
// has to have room for more than them. Larger ones follow as deltas.
const maxWholeArguments = event.MaxEventBytes - 16<<10

func (l *level) started(ctx context.Context, c toolCall, toolID, parent string) error {
	started := event.ToolStarted{ToolCallID: c.CallID, ToolName: toolID, Arguments: event.Object(c.Arguments), ParentMessageID: parent}
	whole := len(c.Arguments) <= maxWholeArguments
	if !whole {
		started.Arguments = event.EmptyObject
	}
	if err := l.tell(ctx, started); err != nil || whole {
		return err
	}
	return eachPiece(string(c.Arguments), func(p string) error {
		return l.tell(ctx, event.ToolArgumentsDelta{ToolCallID: c.CallID, Delta: p})
	})
}

// ended ends a call by what it gave, or by its error.
func (l *level) ended(ctx context.Context, o *openCall, p produced, err error) error {
	if err != nil {
		return l.failed(ctx, o, err)
	}
	if err := l.tell(ctx, event.ToolFinished{ToolCallID: o.ID, Result: p.value, ResultRef: p.ref}); err != nil {
		return err
	}
	o.result(p.text, p.failed)
	return nil
}

// failed ends a call as an error. What says that this run may do nothing more
// ends the run; anything else the model may know, in the words of the code.
func (l *level) failed(ctx context.Context, o *openCall, err error) error {
	const op = "native.call"
	if ctx.Err() != nil {
		return fault.From(ctx.Err(), op)
	}
	f := fault.From(err, op)
	if fatal(ctx, f) {
		return f
	}
	e := event.ToolError{ToolCallID: o.ID, Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable()}
	if err := l.tell(ctx, e); err != nil {
		return err
	}
	text := "Error " + e.Code + ": " + e.Message
	if f.Detail() != "" {
		text += " (" + event.SanitizeText(f.Detail()) + ")"
	}
	o.result(text, true)
	return nil
}

func (o *openCall) result(text string, failed bool) {
	o.Progress, o.Text, o.Failed, o.Conversation, o.Question = callDone, text, failed, nil, nil
}
