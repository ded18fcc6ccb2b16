package conformance

import (
	"context"
	"encoding/json"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// interrupts are fixtures of questions to a person.
func interrupts() []fixture {
	approval := []string{"interrupt.tool_approval"}
	return []fixture{
		{name: "approve", keys: approval, optional: true, run: (*bench).approve},
		{name: "edit", keys: approval, optional: true, run: (*bench).edit},
		{name: "reject", keys: approval, optional: true, run: (*bench).reject},
		{name: "dismiss", keys: approval, optional: true, run: (*bench).dismiss},
		{name: "several approvals", keys: []string{"interrupt.multi_tool"}, optional: true, run: (*bench).several},
		{name: "edit that does not fit", keys: approval, optional: true, run: (*bench).badEdit},
		{name: "resume on a fresh worker", keys: []string{"session.cross_replica_resume"}, optional: true, run: (*bench).freshResume},
		{name: "same decision again", keys: approval, optional: true, run: (*bench).sameDecision},
		{name: "another decision", keys: approval, optional: true, run: (*bench).anotherDecision},
		{name: "interrupt endpoint", keys: approval, optional: true, run: (*bench).interruptEndpoint},
		{name: "interrupt in a fresh worker", keys: approval, optional: true, run: (*bench).interruptInFreshWorker},
		{name: "form", keys: []string{"interrupt.form_input"}, optional: true, run: (*bench).form},
		{name: "dismissed form", keys: []string{"interrupt.form_input"}, optional: true, run: (*bench).dismissedForm},
	}
}

// asks runs a turn that ends with a question about calls of the tool that needs
// an approval.
func (w *worker) asks(args ...string) (*run, event.InterruptRequested) {
	b := w.bench
	b.Helper()
	i := Intent{Then: "That is decided."}
	for _, a := range args {
		i.Calls = append(i.Calls, Call{write, a})
	}
	r := w.start(i)
	got := r.end()
	asked := b.wantInterrupted(got)
	if asked.InterruptType != event.InterruptToolApproval || len(asked.ToolApprovals) != len(args) || asked.AgentID != "agent-1" {
		b.Fatalf("it asked %+v", asked)
	}
	for n, want := range args {
		if a := asked.ToolApprovals[n]; a.ToolName != write || string(a.ToolArgs) != want || len(a.AllowedDecisions) == 0 {
			b.Errorf("it asked about %+v, not %s", a, want)
		}
	}
	b.wantActed()
	b.wantRevision(1)
	if rec := b.stand.Record(b.T); rec.Interrupt == nil || rec.Interrupt.ID != asked.InterruptID || rec.Interrupt.Revision != 1 {
		b.Fatalf("the record has %+v", rec.Interrupt)
	}
	return r, asked
}

func decision(asked event.InterruptRequested, n int, d event.Decision, args string) harness.ToolDecision {
	out := harness.ToolDecision{ToolCallID: asked.ToolApprovals[n].ToolCallID, Decision: d}
	if args != "" {
		out.Arguments = json.RawMessage(args)
	}
	return out
}

func one(asked event.InterruptRequested, d event.Decision, args string) harness.Decision {
	return harness.Decision{Tools: []harness.ToolDecision{decision(asked, 0, d, args)}}
}

func (b *bench) approve() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`)
	got := r.resume(w, one(asked, event.DecisionApprove, "")).end()
	b.wantFinished(got)
	b.wantActed(write + ` {"n":1}`)
	b.wantText(got, "echo of", "That is decided.")
	if len(of[event.ToolStarted](got)) != 0 || len(of[event.ToolFinished](got)) != 1 {
		b.Errorf("events: %s", got.types())
	}
	b.wantRevision(2)
}

func (b *bench) edit() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`)
	got := r.resume(w, one(asked, event.DecisionEdit, `{"n":7}`)).end()
	b.wantFinished(got)
	b.wantActed(write + ` {"n":7}`)
	b.wantRevision(2)
}

func (b *bench) reject() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`)
	got := r.resume(w, one(asked, event.DecisionReject, "")).end()
	b.wantFinished(got)
	b.wantActed()
	b.wantDenied(got, 1)
}

func (b *bench) wantDenied(got events, n int) {
	b.Helper()
	errs := of[event.ToolError](got)
	if len(errs) != n {
		b.Fatalf("events: %s", got.types())
	}
	for _, e := range errs {
		if e.Code != string(fault.ToolDenied) {
			b.Errorf("a call that was not allowed ended as %+v", e)
		}
	}
}

func (b *bench) dismiss() {
	w := b.worker()
	r, _ := w.asks(`{"n":1}`, `{"n":2}`)
	got := r.resume(w, harness.Decision{Dismissed: true}).end()
	b.wantFinished(got)
	b.wantActed()
	b.wantDenied(got, 2)
}

func (b *bench) several() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	got := r.resume(w, harness.Decision{Tools: []harness.ToolDecision{
		decision(asked, 0, event.DecisionApprove, ""), decision(asked, 1, event.DecisionReject, ""), decision(asked, 2, event.DecisionEdit, `{"n":30}`),
	}}).end()
	b.wantFinished(got)
	b.wantActed(write+` {"n":1}`, write+` {"n":30}`)
	b.wantDenied(got, 1)
	if len(of[event.ToolFinished](got)) != 2 {
		b.Errorf("events: %s", got.types())
	}
}

// badEdit: edited arguments are validated again, and the right ones can follow.
func (b *bench) badEdit() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`)
	d := r.decide(one(asked, event.DecisionEdit, `{"n":2}`))
	bad := b.resumption(r, one(asked, event.DecisionEdit, `{"n":"two"}`))
	b.wantCode(w.refuses(bad), fault.ToolArgumentsInvalid)
	b.wantActed()
	got := d.send(w, b.resumption(r, one(asked, event.DecisionEdit, `{"n":2}`))).end()
	b.wantFinished(got)
	b.wantActed(write + ` {"n":2}`)
}

// refuses sends a resume and gives the error with which it is refused.
func (w *worker) refuses(req workerclient.Resume) error {
	b := w.bench
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, _ := w.client(req.Envelope)
	return c.Resume(ctx, req, func(x workerclient.Received) { b.Errorf("it was not refused: %s", x.Event.Type()) })
}

func (b *bench) freshResume() {
	first := b.worker()
	r, asked := first.asks(`{"n":1}`)
	b.must(first.session.Shutdown(b.Context()))
	got := r.resume(b.worker(), one(asked, event.DecisionApprove, "")).end()
	b.wantFinished(got)
	b.wantActed(write + ` {"n":1}`)
	b.wantText(got, "echo of", "That is decided.")
	b.wantRevision(2)
}

// sameDecision: the same decision again has the same result, and nothing happens
// twice.
func (b *bench) sameDecision() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`)
	d := one(asked, event.DecisionApprove, "")
	committed := r.decide(d)
	req := b.resumption(r, d)
	got := committed.send(w, req).end()
	b.wantFinished(got)
	var again events
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, _ := w.client(req.Envelope)
	b.must(c.Resume(ctx, req, func(x workerclient.Received) { again = append(again, x.Event) }))
	if len(again) != 1 || again[0].Sequence != got[len(got)-1].Sequence || again.terminal() != got.terminal() {
		b.Errorf("the same again gave %+v", again)
	}
	b.wantActed(write + ` {"n":1}`)
}

func (b *bench) anotherDecision() {
	w := b.worker()
	r, asked := w.asks(`{"n":1}`)
	first := r.resume(w, one(asked, event.DecisionReject, ""))
	b.wantFinished(first.end())
	b.wantCode(w.refuses(b.resumption(r, one(asked, event.DecisionApprove, ""))), fault.InterruptConflict)
	b.wantActed()
}

// pendingID is what the worker's interrupt endpoint names; "" is none.
func (w *worker) pendingID() string {
	b := w.bench
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, _ := w.client(b.stand.Envelope())
	i, err := c.Interrupt(ctx, b.stand.Envelope())
	b.must(err)
	if i == nil {
		return ""
	}
	if i.Revision != 1 || i.Type != event.InterruptToolApproval {
		b.Errorf("the endpoint says %+v", i)
	}
	return i.ID
}

func (b *bench) interruptEndpoint() {
	w := b.worker()
	w.bind(b.stand.Envelope(), nil)
	if id := w.pendingID(); id != "" {
		b.Errorf("before anything was asked, %s is pending", id)
	}
	r, asked := w.asks(`{"n":1}`)
	if id := w.pendingID(); id != asked.InterruptID {
		b.Errorf("%q is pending, not %s", id, asked.InterruptID)
	}
	b.wantFinished(r.resume(w, one(asked, event.DecisionReject, "")).end())
	if id := w.pendingID(); id != "" {
		b.Errorf("after it was answered, %s is pending", id)
	}
}

// interruptInFreshWorker: a worker that did not ask knows what is pending from the
// committed state, until the next head takes its place.
func (b *bench) interruptInFreshWorker() {
	r, asked := b.worker().asks(`{"n":1}`)
	pending := r.pending()
	w := b.worker()
	e := b.nextRun()
	w.bind(e, pending)
	if id := w.pendingID(); id != asked.InterruptID {
		b.Errorf("%q is pending, not %s", id, asked.InterruptID)
	}
	b.wantFinished(w.startRun(e, b.setup.Phrase(Intent{Say: "Something else."})).end())
	if id := w.pendingID(); id != "" {
		b.Errorf("after the next head, %s is pending", id)
	}
	b.wantActed()
}

// asksForm runs a turn that ends with a form.
func (w *worker) asksForm() *run {
	b := w.bench
	b.Helper()
	r := w.start(Intent{Form: true, Then: "Thank you."})
	asked := b.wantInterrupted(r.end())
	if asked.InterruptType != event.InterruptFormInput || len(asked.Fields) != 1 || asked.Fields[0].FieldName != "region" || !asked.Fields[0].Required {
		b.Fatalf("it asked %+v", asked)
	}
	return r
}

func (b *bench) form() {
	w := b.worker()
	r := w.asksForm()
	got := r.resume(w, harness.Decision{Form: json.RawMessage(`{"region":"antarctica"}`)}).end()
	b.wantFinished(got)
	b.wantText(got, "antarctica", "Thank you.")
	b.wantRevision(2)
}

func (b *bench) dismissedForm() {
	w := b.worker()
	r := w.asksForm()
	got := r.resume(w, harness.Decision{Dismissed: true}).end()
	b.wantFinished(got)
	b.wantText(got, "dismissed", "Thank you.")
}
