package acp

import (
	"context"
	"fmt"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// Resume goes on where an interrupt was committed: with the agent that was stopped
// there, or with another one that loads the session and is told what was decided.
func (r *runtime) Resume(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	if err := r.take(ctx); err != nil {
		return harness.Result{}, err
	}
	defer r.give()
	t := r.newTurn(ctx, d.RunID, f, emit)
	if h := r.held; h != nil && h.interrupt == d.Interrupt.InterruptID {
		if head, err := f.Thread.Load(ctx, codec(&r.cfg.Preset)); err == nil && head.Revision == h.revision {
			return r.thaw(ctx, t, h, d)
		}
	}
	if err := r.drop(ctx); err != nil {
		return harness.Result{}, err
	}
	t.projector.carry(d)
	return r.fresh(ctx, t, func(_ context.Context, _ *program, _ bool) ([]block, error) {
		err := t.project(func(*projector) ([]event.Draft, error) { return denials(d), nil })
		return []block{textBlock(t.verdicts(d))}, err
	})
}

// thaw lets the agent go on with the answers to its questions.
func (r *runtime) thaw(ctx context.Context, t *turn, h *held, d harness.Decision) (harness.Result, error) {
	r.held, r.dirty = nil, true
	t.program, t.projector, t.revision, t.made = h.program, h.projector, h.revision, h.made
	t.projector.again(t.tag)
	t.projector.carry(d)
	if err := r.open(ctx, t); err != nil {
		return harness.Result{}, t.abandon(ctx, err)
	}
	defer t.run.Close()
	if err := t.project(func(p *projector) ([]event.Draft, error) {
		for _, e := range denials(d) {
			if e, ok := e.Data.(event.ToolError); ok {
				p.ended(e.ToolCallID)
			}
		}
		return denials(d), nil
	}); err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	t.rejected = len(denials(d)) > 0
	t.program.client.attach(t, t.program.session, true)
	if err := r.cfg.World.Thaw(ctx); err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	t.program.resume()
	for _, a := range h.asks {
		v := allow
		if decisionOn(d, a.call.id) == event.DecisionReject {
			v = reject
		}
		a.answer <- chosen(a.options, v)
	}
	return t.drive(ctx)
}

// abandon ends an agent that could not go on.
func (t *turn) abandon(ctx context.Context, err error) error {
	t.shut()
	t.program.client.detach()
	if stop := t.program.stop(ctx, false); stop != nil {
		return fmt.Errorf("%w; and then: %w", err, stop)
	}
	return err
}

// decisionOn is what was decided about a call. One that is not named is rejected.
func decisionOn(d harness.Decision, callID string) event.Decision {
	for _, t := range d.Tools {
		if t.ToolCallID == callID && !d.Dismissed {
			return t.Decision
		}
	}
	return event.DecisionReject
}

// denials end the calls that were rejected.
func denials(d harness.Decision) (out []event.Draft) {
	for _, a := range d.Interrupt.ToolApprovals {
		if decisionOn(d, a.ToolCallID) == event.DecisionReject {
			out = append(out, toolError(a.ToolCallID, fault.ToolDenied))
		}
	}
	return out
}

// carry lets exactly the approved calls pass, each once. Those of the agent's own
// tools that are open already pass by the answer to their question.
func (p *projector) carry(d harness.Decision) {
	p.grants = nil
	for _, a := range d.Interrupt.ToolApprovals {
		g := &grant{callID: a.ToolCallID, toolID: a.ToolName, arguments: a.ToolArgs}
		switch decisionOn(d, a.ToolCallID) {
		case event.DecisionReject:
			continue
		case event.DecisionEdit:
			for _, t := range d.Tools {
				if t.ToolCallID == a.ToolCallID {
					g.edited = event.Object(t.Arguments)
				}
			}
		case event.DecisionApprove:
		}
		if c := p.callOf(a.ToolCallID); c != nil && c.tool == nil {
			continue
		}
		p.grants = append(p.grants, g)
	}
}

// callOf is the agent's call of an id.
func (p *projector) callOf(id string) *call {
	for _, c := range p.order {
		if c.id == id {
			return c
		}
	}
	return nil
}

// verdicts tell the model what was decided, in words.
func (t *turn) verdicts(d harness.Decision) string {
	var b strings.Builder
	b.WriteString("The user has decided on the tool calls that waited for approval.\n")
	for _, a := range d.Interrupt.ToolApprovals {
		name := strings.TrimPrefix(a.ToolName, ownPrefix)
		for _, o := range t.construction.Tools {
			if o.ID == a.ToolName {
				name = o.OfferedName
			}
		}
		switch decisionOn(d, a.ToolCallID) {
		case event.DecisionApprove:
			fmt.Fprintf(&b, "- Approved: %s with the arguments %s. Make exactly this call now.\n", name, a.ToolArgs)
		case event.DecisionEdit:
			edited := a.ToolArgs
			for _, t := range d.Tools {
				if t.ToolCallID == a.ToolCallID {
					edited = event.Object(t.Arguments)
				}
			}
			fmt.Fprintf(&b, "- Approved with a change: %s with the arguments %s. Make exactly this call now.\n", name, edited)
		case event.DecisionReject:
			fmt.Fprintf(&b, "- Rejected: %s with the arguments %s. Do not make this call; go on without it.\n", name, a.ToolArgs)
		}
	}
	return b.String()
}
