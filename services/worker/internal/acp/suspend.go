package acp

import (
	"context"
	"slices"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// suspend ends the run as one that waits for a person. The agent is stopped with
// its questions open, so that it can go on where it stands; its session is
// archived for a worker that knows nothing of it. A call that waits at the MCP
// endpoint cannot be held open so long: clients give such a request up. Then the
// agent is ended, and the session is loaded again.
func (t *turn) suspend(ctx context.Context) error {
	p := t.program
	if err := p.pause(ctx); err != nil {
		return t.broke(ctx, err)
	}
	var asks []*ask
	var calls []waiting
	if err := t.project(func(p *projector) (out []event.Draft, _ error) {
		t.suspended = true
		// They were taken side by side, and people are asked in the agent's order.
		asks, calls = slices.Clone(t.asks), slices.Clone(t.brokered)
		slices.SortStableFunc(asks, func(a, b *ask) int { return a.call.place - b.call.place })
		for _, a := range asks {
			out = append(out, p.present(a.call)...)
		}
		return out, nil
	}); err != nil {
		return t.broke(ctx, err)
	}
	// A world that cannot be stopped is ended.
	hold := len(calls) == 0 && t.cfg.World.Freeze(ctx) == nil
	t.run.Close()
	if !hold {
		p.client.detach()
		if err := p.stop(ctx, false); err != nil {
			return t.broke(ctx, err)
		}
	}
	payload, err := t.archive(ctx, header{Session: p.session, Made: t.made})
	if err != nil {
		return t.broke(ctx, err)
	}
	requested := t.request(asks, calls)
	if err := t.project(func(p *projector) ([]event.Draft, error) {
		keep := make(map[string]bool, len(requested.ToolApprovals))
		for _, a := range requested.ToolApprovals {
			keep[a.ToolCallID] = true
		}
		out := append(p.finish(keep), p.overdue(keep)...)
		return append(append(out, t.usage(false)...), event.Draft{Data: requested}), nil
	}); err != nil {
		return t.broke(ctx, err)
	}
	t.shut()
	if err := t.facades.Thread.Interrupt(ctx, codec(&t.cfg.Preset), t.revision, payload); err != nil {
		return t.broke(ctx, err)
	}
	t.at, t.dirty = t.revision+1, hold
	if hold {
		t.held = &held{
			program: p, projector: t.projector, asks: asks,
			interrupt: requested.InterruptID, revision: t.revision + 1, made: t.made,
		}
	}
	return nil
}

// overdue ends the calls of approvals that were never made, but for those of keep.
func (p *projector) overdue(keep map[string]bool) (out []event.Draft) {
	for _, g := range p.grants {
		if !g.used && !keep[g.callID] && p.isOpen(g.callID) {
			g.used = true
			out = append(out, toolError(g.callID, fault.Cancelled))
		}
	}
	return out
}

// isOpen tells whether a granted call has not been ended with the calls of the
// agent.
func (p *projector) isOpen(id string) bool {
	return !slices.ContainsFunc(p.order, func(c *call) bool { return c.id == id && c.ended })
}

// request names each call once, however often the agent asks about it.
func (t *turn) request(asks []*ask, calls []waiting) event.InterruptRequested {
	req := event.InterruptRequested{
		InterruptID: "int-" + t.tag, InterruptType: event.InterruptToolApproval, AgentID: t.construction.AgentID,
	}
	add := func(id, toolID string, args event.Object, may ...event.Decision) {
		if slices.ContainsFunc(req.ToolApprovals, func(a event.ToolApproval) bool { return a.ToolCallID == id }) {
			return
		}
		req.ToolApprovals = append(req.ToolApprovals, event.ToolApproval{ToolCallID: id, ToolName: toolID, ToolArgs: args, AllowedDecisions: may})
	}
	for _, a := range asks {
		if a.call.tool != nil {
			add(a.call.id, a.call.toolID, a.call.told, event.DecisionApprove, event.DecisionEdit, event.DecisionReject)
		} else {
			add(a.call.id, a.call.toolID, a.call.told, event.DecisionApprove, event.DecisionReject)
		}
	}
	for _, c := range calls {
		add(c.id, c.toolID, c.arguments, event.DecisionApprove, event.DecisionEdit, event.DecisionReject)
	}
	return req
}
