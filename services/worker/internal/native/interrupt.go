package native

import (
	"context"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

// interruptID is that of the one interrupt that a run may end with.
func (r *run) interruptID() string { return r.id("int", 1) }

// interrupt asks a person and ends the run: the state has all that is needed to
// go on in another worker.
func (l *level) interrupt(ctx context.Context, head harness.Head, s *state) error {
	q, path, err := l.toAsk()
	if err != nil {
		return err
	}
	s.Interrupt = q.InterruptID
	payload, err := l.fit(ctx, s)
	if err != nil {
		return err
	}
	// Nothing but what closes may follow the question.
	if err := l.tellUsage(ctx, true); err != nil {
		return err
	}
	if err := l.emit.Emit(ctx, event.Draft{Namespace: path, Data: q}); err != nil {
		return err
	}
	if err := l.suspend(ctx); err != nil {
		return err
	}
	return l.Thread.Interrupt(ctx, codec(), head.Revision, payload)
}

// asking is a call that waits, and where.
type asking struct {
	level    *level
	approval event.ToolApproval
}

// questions are the calls that wait, here and below, in their order.
func (l *level) questions() []asking {
	var all []asking
	calls := l.reopened().calls
	for i, o := range l.conv.Open {
		switch o.Progress { //nolint:exhaustive // the others do not wait for an approval
		case callAsked:
			all = append(all, asking{l, event.ToolApproval{
				ToolCallID: o.ID, ToolName: l.agent.tools[calls[i].Name].id, ToolArgs: event.Object(calls[i].Arguments),
				AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject},
			}})
		case callDelegated:
			all = append(all, l.below[o.ID].questions()...)
		}
	}
	return all
}

// toAsk is what a person is asked, and in which namespace: that of the subagent
// whose calls they all are, else the root's. Approvals come before what a tool asks,
// and that one tool at a time.
func (l *level) toAsk() (q event.InterruptRequested, path []string, err error) {
	if l.question != nil {
		return *l.question, nil, nil
	}
	all := l.questions()
	if len(all) == 0 {
		who, asked := l.waiting()
		if q, err = asked.interrupt(); err != nil {
			return q, nil, damaged(err)
		}
		return q, who.path, nil
	}
	who := all[0].level
	q = event.InterruptRequested{InterruptID: l.interruptID(), InterruptType: event.InterruptToolApproval}
	for _, a := range all {
		if a.level != who {
			who = l
		}
		q.ToolApprovals = append(q.ToolApprovals, a.approval)
	}
	q.AgentID = who.agent.id
	return q, who.path, nil
}

// suspend closes the namespaces of what waits, the innermost first. The calls
// that delegate stay open with those that wait.
func (l *level) suspend(ctx context.Context) error {
	for _, o := range l.conv.Open {
		if o.Progress != callDelegated {
			continue
		}
		below := l.below[o.ID]
		if err := below.suspend(ctx); err != nil {
			return err
		}
		if err := below.exit(ctx, event.NamespaceInterrupted); err != nil {
			return err
		}
	}
	return nil
}
