package acp

import (
	"context"
	"slices"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/loopback"
)

// maxSiblings bounds the wait for further questions, and for calls that are being
// made.
const maxSiblings = 30 * time.Second

// ask is a question of the agent that a person has to answer.
type ask struct {
	call    *call
	options []sdk.PermissionOption
	answer  chan sdk.RequestPermissionOutcome
}

// waiting is a call at the MCP endpoint that a person has to decide on.
type waiting struct {
	id, toolID string
	arguments  event.Object
}

// verdict on a question.
type verdict int

const (
	reject verdict = iota
	allow
	person
)

// asking implements turnListener: what the question says of its call comes before
// the question.
func (t *turn) asking(r report) error {
	_ = t.project(func(p *projector) ([]event.Draft, error) { // it ends the turn by failed
		_, err := p.take(r)
		return nil, err
	})
	return nil
}

// decide implements turnListener.
func (t *turn) decide(ctx context.Context, key string, options []sdk.PermissionOption) sdk.RequestPermissionOutcome {
	var v verdict
	a := &ask{options: options, answer: make(chan sdk.RequestPermissionOutcome, 1)}
	err := t.project(func(p *projector) (out []event.Draft, _ error) {
		a.call = p.calls[key]
		if a.call == nil {
			return nil, nil
		}
		v, out = t.judge(p, a.call)
		switch v {
		case reject:
			t.rejected = true
			out = append(out, p.deny(a.call)...)
		case person:
			t.asks, t.lastAsk = append(t.asks, a), time.Now()
		case allow:
		}
		return out, nil
	})
	switch {
	case err != nil:
		return cancelledOutcome()
	case v == person:
		return t.wait(ctx, a)
	default:
		return chosen(options, v)
	}
}

// wait tells of the question, and waits for its answer.
func (t *turn) wait(ctx context.Context, a *ask) sdk.RequestPermissionOutcome {
	t.signal()
	select {
	case o := <-a.answer:
		return o
	case <-ctx.Done(): // the agent does not want to know any more, or has ended
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asks = slices.DeleteFunc(t.asks, func(b *ask) bool { return a == b })
		return cancelledOutcome()
	}
}

func (t *turn) signal() {
	select {
	case t.asked <- struct{}{}:
	default:
	}
}

// judge decides about a call as far as no person is needed. An offered tool's call
// is decided on by the broker and at the MCP endpoint; here it only waits for a
// person where it needs one and shows its arguments.
func (t *turn) judge(p *projector, c *call) (verdict, []event.Draft) {
	mayAsk := t.construction.Interrupts.ToolApproval && !t.suspended && p.openOwn()+len(t.asks) < maxOpenOwn
	if c.id == "" && c.tool == nil {
		c.tool = p.tools.find(c)
	}
	if c.tool != nil {
		args, known := c.shown()
		switch {
		case !c.tool.ApprovalRequired, known && p.grantFor(c.tool.ID, args) != nil, !known && p.expected(c.tool.ID):
			return allow, nil
		case !mayAsk, c.ended:
			return reject, nil
		default:
			// What is not known of it may still come; else the endpoint asks.
			c.waits = true
			return person, nil
		}
	}
	// Nobody can decide on a call of which nothing can be shown.
	args, _ := c.shown()
	mayAsk = mayAsk && t.cfg.Preset.Permission == PermissionAsk && !c.ended && args != event.EmptyObject
	if mayAsk && !c.granted && p.approval(c) == nil {
		c.waits = true
		return person, nil
	}
	out := p.follow(c, true)
	switch {
	case c.granted:
		c.granted = false
		return allow, out
	case t.cfg.Preset.Permission == PermissionAllow:
		return allow, out
	default:
		return reject, out
	}
}

// deny ends a call that is not made.
func (p *projector) deny(c *call) []event.Draft {
	if c.id == "" || c.ended {
		c.ended = true
		return nil
	}
	c.ended = true
	return []event.Draft{toolError(c.id, fault.ToolDenied)}
}

// Admit implements loopback.Gate.
func (t *turn) Admit(c loopback.Call) (a loopback.Admission) {
	err := t.project(func(p *projector) ([]event.Draft, error) {
		g := p.grantFor(c.Tool.ID, event.Object(c.Arguments))
		switch {
		case g != nil:
			g.used, a.CallID = true, g.callID
			p.underway = append(p.underway, g.callID)
			if g.edited != "" {
				a.Arguments = []byte(g.edited)
			}
		case !c.Tool.ApprovalRequired:
		case t.construction.Interrupts.ToolApproval && !t.suspended:
			a.Ask = true
		default:
			a.Refuse = fault.New(fault.ApprovalRequired, "acp.Admit")
		}
		return p.arrived(c.Tool, c.Meta), nil
	})
	if err != nil {
		a.Refuse = fault.From(err, "acp.Admit")
	}
	return a
}

// Ask implements loopback.Gate.
func (t *turn) Ask(callID string, c loopback.Call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.construction.Interrupts.ToolApproval || t.suspended || t.closed || t.projector.carries(callID) {
		return false
	}
	t.brokered = append(t.brokered, waiting{id: callID, toolID: c.Tool.ID, arguments: event.Object(c.Arguments)})
	t.lastAsk = time.Now()
	t.signal()
	return true
}

// carries tells whether a call was decided on in an earlier run, and so cannot be
// asked about again.
func (p *projector) carries(callID string) bool {
	return slices.ContainsFunc(p.grants, func(g *grant) bool { return g.callID == callID })
}

// settled waits until no further question has come for a while, and no call is
// being made. false says that something else has happened meanwhile, or that
// nothing is asked any more.
func (t *turn) settled(ctx context.Context) bool {
	enough := time.NewTimer(maxSiblings)
	defer enough.Stop()
	look := time.NewTicker(max(t.cfg.Siblings/5, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case res := <-t.program.prompted:
			t.program.prompted <- res // drive takes it
			return false
		case <-t.program.broken:
			return false
		case <-t.program.proc.Done():
			return false
		case <-t.failed:
			return false
		case <-ctx.Done():
			return false
		case <-enough.C:
			return t.askable()
		case <-look.C:
			if !t.open() {
				return false
			}
			if t.quietSince() >= t.cfg.Siblings && t.run.Calling() == 0 {
				return t.askable()
			}
		}
	}
}

// askable sorts out the questions that a person cannot be asked, and tells
// whether any are left. A call of an offered tool of which the agent shows no
// arguments is asked about where they are known: at the MCP endpoint.
func (t *turn) askable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asks = slices.DeleteFunc(t.asks, func(a *ask) bool {
		c := a.call
		_, known := c.shown()
		v := allow
		switch {
		case c.ended, rank(c.status) == rank(statusDone):
			v = reject // it was over before anybody could decide
		case c.tool == nil, known:
			return false
		}
		c.waits = false
		a.answer <- chosen(a.options, v)
		return true
	})
	return len(t.asks)+len(t.brokered) > 0
}

// open tells whether a person is waited for.
func (t *turn) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.asks)+len(t.brokered) > 0
}

func (t *turn) quietSince() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.lastAsk)
}

// answerAll answers every question that is open.
func (t *turn) answerAll(o sdk.RequestPermissionOutcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.asks {
		select {
		case a.answer <- o:
		default: // it is answered
		}
	}
	t.asks = nil
}

// chosen is the option of a kind: ids and places mean nothing. What would hold for
// longer than this one call is never chosen.
func chosen(options []sdk.PermissionOption, v verdict) sdk.RequestPermissionOutcome {
	kind := sdk.PermissionOptionKindRejectOnce
	if v == allow {
		kind = sdk.PermissionOptionKindAllowOnce
	}
	for _, o := range options {
		if o.Kind == kind {
			return sdk.RequestPermissionOutcome{Selected: &sdk.RequestPermissionOutcomeSelected{Outcome: "selected", OptionId: o.OptionId}}
		}
	}
	return cancelledOutcome()
}

func cancelledOutcome() sdk.RequestPermissionOutcome {
	return sdk.RequestPermissionOutcome{Cancelled: &sdk.RequestPermissionOutcomeCancelled{Outcome: "cancelled"}}
}
