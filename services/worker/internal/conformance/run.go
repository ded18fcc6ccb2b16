package conformance

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// owner drives the runs of the Stand.
const owner = "replica-1"

// run is one run, as its control plane sees it: every event is checked for whose
// it is, judged, and committed before anything else happens.
type run struct {
	bench    *bench
	worker   *worker
	envelope fence.Envelope
	tokens   []session.Token
	// leave cancels the request that carries the stream.
	leave context.CancelFunc
	done  chan struct{}
	// logged are the events that are to be committed, in their order.
	logged chan event.Event
	// concluded says that the committed run has its end.
	concluded bool

	mu      sync.Mutex
	machine *event.Machine
	events  []event.Event
	changed chan struct{}
	// err is how the stream ended; wrong is what should not have come.
	err, wrong error
}

// start starts the turn of an intent in a new run.
func (w *worker) start(i Intent) *run {
	w.bench.Helper()
	return w.startMessage(w.bench.setup.Phrase(i))
}

func (w *worker) startMessage(message string) *run {
	w.bench.Helper()
	return w.startRun(w.bench.nextRun(), message)
}

func (w *worker) startRun(e fence.Envelope, message string, files ...harness.File) *run {
	w.bench.Helper()
	w.bind(e, nil)
	r := w.newRun(e, nil)
	req := workerclient.Start{Envelope: e, ConversationID: conversation, Message: message, Files: files, Tokens: r.tokens}
	r.begin(func(ctx context.Context, c workerclient.Client) error { return c.Start(ctx, req, r.take) })
	return r
}

func (w *worker) newRun(e fence.Envelope, carried []event.Carried) *run {
	return &run{
		bench: w.bench, worker: w, envelope: e, tokens: w.bench.tokens(e), done: make(chan struct{}), changed: make(chan struct{}),
		logged:  make(chan event.Event, maxUnlogged),
		machine: event.NewMachine(e.RunID, conversation, event.Bounds{}, carried...),
	}
}

func (r *run) begin(send func(context.Context, workerclient.Client) error) {
	r.bench.Helper()
	c, _ := r.worker.client(r.envelope)
	var ctx context.Context
	ctx, r.leave = context.WithCancel(trace.ContextWithSpanContext(r.bench.Context(), r.bench.trace))
	r.bench.Cleanup(func() {
		r.leave()
		<-r.done
	})
	unlogged := make(chan error, 1)
	go func() { unlogged <- r.log() }()
	go func() {
		defer close(r.done)
		err := send(ctx, c)
		close(r.logged)
		wrong := <-unlogged
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
		if r.wrong == nil {
			r.wrong = wrong
		}
		close(r.changed)
		r.changed = make(chan struct{})
	}()
}

// maxUnlogged events may have come before they are committed.
const maxUnlogged = 256

// log commits events until there are no more: as many at once as have come
// meanwhile, as a control plane does.
func (r *run) log() (err error) {
	for e := range r.logged {
		batch := []event.Event{e}
		for more := true; more && len(batch) < maxUnlogged; {
			select {
			case e, more = <-r.logged:
				if more {
					batch = append(batch, e)
				}
			default:
				more = false
			}
		}
		if err == nil { // otherwise they are only taken
			err = r.append(batch)
		}
	}
	return err
}

// take takes one event of the stream.
func (r *run) take(x workerclient.Received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		return
	}
	switch {
	case !sameRun(x.Envelope, r.envelope) || x.CapabilityJTI != r.worker.by || x.BootNonce != r.worker.expect.BootNonce:
		r.wrong = errors.New("an event with the authority of another run or worker")
	default:
		if err := r.machine.Accept(x.Event); err != nil {
			r.wrong = err
		} else if x.Event.Sequence > 0 && !x.Event.Type().Terminal() {
			r.logged <- x.Event // the first stands there since the run was started
		}
	}
	r.events = append(r.events, x.Event)
	close(r.changed)
	r.changed = make(chan struct{})
}

func sameRun(a, b fence.Envelope) bool {
	return a.BindingID == b.BindingID && a.Epoch == b.Epoch && a.Generation == b.Generation && a.RunID == b.RunID
}

// append commits events to the log. A run that left service meanwhile has no log
// any more.
func (r *run) append(events []event.Event) error {
	b := r.bench
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), patience)
	defer cancel()
	batch := binding.Batch{Nonce: rand.Text(), First: events[0].Sequence}
	for _, e := range events {
		text, err := event.Encode(e)
		if err != nil {
			return err
		}
		batch.Events = append(batch.Events, text)
	}
	env := b.stand.Envelope()
	env.RunID = r.envelope.RunID
	g, err := b.stand.Guard().Admit(ctx, env)
	if err == nil {
		_, err = b.stand.Writer.Append(ctx, g, owner, batch)
	}
	if fault.Is(err, fault.StaleLease) || fault.Is(err, fault.Cancelled) {
		return nil
	}
	return err
}

// untilText waits for a piece of text, and fails where the run ends without one.
func (r *run) untilText() {
	r.bench.Helper()
	timeout := time.After(patience)
	for seen := 0; ; {
		r.mu.Lock()
		events, changed, ended := r.events, r.changed, r.over()
		r.mu.Unlock()
		for ; seen < len(events); seen++ {
			if events[seen].Type() == event.TypeTextDelta {
				return
			}
		}
		if ended {
			r.bench.Fatalf("the run ended without a text: %s", r.all().types())
		}
		select {
		case <-changed:
		case <-timeout:
			r.bench.Fatalf("no text within %s: %s", patience, r.all().types())
		}
	}
}

// over reports whether the stream has ended; the caller holds the lock.
func (r *run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// stream waits for the end of the stream, and gives how it ended. Nothing is
// concluded.
func (r *run) stream() error {
	r.bench.Helper()
	select {
	case <-r.done:
	case <-time.After(patience + 5*time.Second):
		r.bench.Fatalf("the stream does not end: %s", r.all().types())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		r.bench.Fatalf("%v, after %s", r.wrong, events(r.events).types())
	}
	return r.err
}

// end waits for the terminal, concludes the run as the control plane does, and
// gives its events.
func (r *run) end() events {
	r.bench.Helper()
	if err := r.stream(); err != nil {
		r.bench.Fatalf("the stream broke: %v, after %s", err, r.all().types())
	}
	if _, ok := r.machine.Terminal(); !ok {
		r.bench.Fatalf("the stream ended without a terminal: %s", r.all().types())
	}
	r.conclude()
	return r.all()
}

func (r *run) conclude() {
	r.bench.Helper()
	if !r.concluded {
		r.concluded = true
		r.bench.stand.EndRun(r.bench.T)
	}
}

func (r *run) all() events {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(events(nil), r.events...)
}

// turn runs one turn to its end.
func (w *worker) turn(i Intent) events {
	w.bench.Helper()
	return w.start(i).end()
}

// cancel asks the worker to end the run.
func (r *run) cancel(reason event.CancelReason) session.Cancelled {
	b := r.bench
	b.Helper()
	c, _ := r.worker.client(r.envelope)
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	e := b.stand.Envelope()
	e.RunID = r.envelope.RunID
	out, err := c.Cancel(ctx, e, reason)
	b.must(err)
	return out
}

// resume commits a decision on the interrupt of a run that has ended, and carries
// it out on a worker.
func (r *run) resume(w *worker, d harness.Decision) *run {
	b := r.bench
	b.Helper()
	return r.decide(d).send(w, b.resumption(r, d))
}

// resumption is the request for a decision, in the run that is committed now.
func (b *bench) resumption(r *run, d harness.Decision) workerclient.Resume {
	asked, _ := r.machine.Interrupt()
	e := b.stand.Envelope()
	e.IdempotencyKey = "run"
	return workerclient.Resume{Envelope: e, ConversationID: conversation, Interrupt: asked, Revision: r.pending().Revision, Decision: d, Tokens: b.tokens(e)}
}

// pending is the interrupt as the record had it when the run had ended.
func (r *run) pending() *session.Interrupt {
	asked, ok := r.machine.Interrupt()
	if !ok {
		r.bench.Fatal("the run asked nothing")
	}
	rec := r.bench.stand.Record(r.bench.T)
	out := &session.Interrupt{ID: asked.InterruptID, Type: asked.InterruptType}
	switch {
	case rec.Interrupt != nil && rec.Interrupt.ID == asked.InterruptID:
		out.Revision = rec.Interrupt.Revision
	case rec.Resumed != nil && rec.Resumed.InterruptID == asked.InterruptID:
		out.Revision = rec.Resumed.Revision
	default:
		r.bench.Fatal("the interrupt is not in the record")
	}
	return out
}

// decided is a decision that is committed.
type decided struct {
	from    *run
	carried []event.Carried
}

// decide commits a decision: what was approved may be called from now on.
func (r *run) decide(d harness.Decision) decided {
	b := r.bench
	b.Helper()
	p := r.pending()
	asked, _ := r.machine.Interrupt()
	body, err := event.InterruptBody(asked)
	b.must(err)
	sum := sha256.Sum256(body) // that the record has the hash of what was asked is judged by its write
	runID := "resumed_" + rand.Text()
	_, err = b.stand.Writer.Resume(b.Context(), binding.ResumeParams{
		StartParams: binding.StartParams{
			BindingID: b.stand.BindingID, RunID: runID, RequestID: "request-resume", KeyDigest: "key", Epoch: b.stand.Envelope().Epoch,
			Deadline: time.Now().Add(5 * time.Minute), Owner: owner,
		},
		InterruptID: p.ID, Revision: p.Revision, AskedBy: r.envelope.RunID, InterruptHash: hex.EncodeToString(sum[:]),
		DecisionHash: fmt.Sprintf("%+v", d),
	})
	b.must(err)
	b.stand.RunID = runID
	b.stand.Append(b.T, 1)
	out := decided{from: r}
	by := map[string]event.Decision{}
	for _, t := range d.Tools {
		by[t.ToolCallID] = t.Decision
		if t.Decision != event.DecisionReject {
			b.brokers.Approve(t.ToolCallID)
		}
	}
	for _, c := range r.machine.Pending() {
		c.Decision = by[c.ToolCallID]
		if d.Dismissed {
			c.Decision = event.DecisionReject
		}
		out.carried = append(out.carried, c)
	}
	return out
}

// send sends the decision to a worker.
func (d decided) send(w *worker, req workerclient.Resume) *run {
	w.bench.Helper()
	// Who binds for the answer to an interrupt says that none is pending: it was
	// taken out with the decision.
	w.bind(req.Envelope, nil)
	r := w.newRun(req.Envelope, d.carried)
	r.begin(func(ctx context.Context, c workerclient.Client) error { return c.Resume(ctx, req, r.take) })
	return r
}

type events []event.Event

func (e events) types() string {
	out := make([]string, 0, len(e))
	for _, e := range e {
		out = append(out, string(e.Type()))
	}
	return strings.Join(out, " ")
}

func (e events) terminal() event.Data {
	if len(e) == 0 {
		return nil
	}
	return e[len(e)-1].Data
}

// of gives the payloads of one type.
func of[D event.Data](e events) []D {
	var out []D
	for _, e := range e {
		if d, ok := e.Data.(D); ok {
			out = append(out, d)
		}
	}
	return out
}

func (e events) text() string {
	var b strings.Builder
	for _, d := range of[event.TextDelta](e) {
		b.WriteString(d.Delta)
	}
	return b.String()
}

func (b *bench) wantFinished(e events) {
	b.Helper()
	if _, ok := e.terminal().(event.RunFinished); !ok {
		b.Fatalf("the run ended by %#v, after %s", e.terminal(), e.types())
	}
}

func (b *bench) wantText(e events, parts ...string) {
	b.Helper()
	for _, p := range parts {
		if !strings.Contains(e.text(), p) {
			b.Errorf("%q is not in what was said: %q", p, e.text())
		}
	}
}

func (b *bench) wantError(e events, codes ...fault.Code) {
	b.Helper()
	got, ok := e.terminal().(event.RunError)
	if !ok {
		b.Fatalf("the run ended by %#v, after %s", e.terminal(), e.types())
	}
	for _, c := range codes {
		if got.Code == string(c) && got.Message == c.Message() && got.Retryable == c.Retryable() {
			return
		}
	}
	b.Errorf("the run ended by %+v, want %v", got, codes)
}

func (b *bench) wantCancelled(e events, reason event.CancelReason) event.RunCancelled {
	b.Helper()
	got, ok := e.terminal().(event.RunCancelled)
	if !ok || got.Reason != reason {
		b.Fatalf("the run ended by %#v, after %s", e.terminal(), e.types())
	}
	return got
}

func (b *bench) wantInterrupted(e events) event.InterruptRequested {
	b.Helper()
	asked := of[event.InterruptRequested](e)
	if _, ok := e.terminal().(event.RunInterrupted); !ok || len(asked) != 1 {
		b.Fatalf("the run ended by %#v, after %s", e.terminal(), e.types())
	}
	return asked[0]
}

// wantRevision checks the head that is committed.
func (b *bench) wantRevision(want uint64) {
	b.Helper()
	if got := b.stand.Record(b.T).Head.Revision; got != want {
		b.Errorf("the head is at revision %d, want %d", got, want)
	}
}
