package native

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// testRun is one run as a worker drives it: the real lifecycle machine judges
// every draft, and the terminal follows from what was committed.
type testRun struct {
	ctx    context.Context //nolint:containedctx // the life of the run
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	machine *event.Machine
	events  events
	broken  error
	covered bool
	// committed and interrupted say how the run ended.
	committed, interrupted bool
}

var errAfterCommit = errors.New("a draft after the commit")

func newRun(t *testing.T, runID string, deadline time.Duration, carried ...event.Carried) *testRun {
	t.Helper()
	r := &testRun{ended: make(chan struct{}), machine: event.NewMachine(runID, conversationID, event.Bounds{}, carried...)}
	r.ctx, r.cancel = context.WithTimeout(t.Context(), deadline)
	return r
}

// Emit implements harness.Emitter.
func (r *testRun) Emit(ctx context.Context, d event.Draft) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), "test")
	case r.ctx.Err() != nil:
		return fault.From(r.ctx.Err(), "test")
	case r.broken != nil:
		return r.broken
	case event.IsEmptyDelta(d.Data):
		return nil
	}
	err := r.take(d)
	if r.covered {
		err = errAfterCommit
	}
	if err != nil {
		r.broken = fault.Wrap(err, fault.Protocol, "test")
	}
	return r.broken
}

func (r *testRun) take(d event.Draft) error {
	e := r.machine.Stamp(d, time.Unix(1, 0))
	if err := r.machine.Accept(e); err != nil {
		return err
	}
	r.events = append(r.events, e)
	return nil
}

// cover refuses a commit under which something would stay open.
func (r *testRun) cover(end event.Data) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return fault.From(r.ctx.Err(), "test")
	}
	if err := r.machine.Check(r.machine.Stamp(event.Draft{Data: end}, time.Unix(1, 0))); err != nil {
		return fault.Wrap(err, fault.Protocol, "test")
	}
	r.covered = true
	return nil
}

// finish makes the terminal.
func (r *testRun) finish(t *testing.T, result harness.Result, err error) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch asked, _ := r.machine.Interrupt(); {
	case r.broken != nil && !r.covered:
		t.Errorf("the lifecycle is broken: %v", r.broken)
		err = r.broken
	case r.committed:
		reason := result.StopReason
		if !event.ValidID(reason) {
			reason = "unknown"
		}
		must(t, r.take(event.Draft{Data: event.RunFinished{StopReason: reason}}))
		return
	case r.interrupted:
		must(t, r.take(event.Draft{Data: event.RunInterrupted{InterruptID: asked.InterruptID, Reason: asked.InterruptType.Reason()}}))
		return
	}
	f := fault.From(err, "test")
	if f == nil {
		t.Error("the adapter committed nothing and says nothing")
		f = fault.New(fault.Protocol, "test")
	}
	var end event.Data
	switch {
	case errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		end = event.RunCancelled{Reason: event.CancelledByDeadline, SideEffectStatus: event.SideEffectsPossible}
	case r.ctx.Err() != nil:
		end = event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsPossible}
	default:
		e := event.RunError{Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable(), SideEffectStatus: event.SideEffectsPossible}
		if s := f.RetryAfter() / time.Second; s > 0 {
			n := uint64(s)
			e.RetryAfterSeconds = &n
		}
		end = e
	}
	closing, cerr := r.machine.Close(time.Unix(1, 0), event.RunStarted{HarnessID: ID, AdapterVersion: Version}, end)
	must(t, cerr)
	r.events = append(r.events, closing...)
}

// begin drives a run in a goroutine that ends with it.
func (r *testRun) begin(t *testing.T, do func(context.Context) (harness.Result, error)) *testRun {
	t.Helper()
	must(t, r.Emit(r.ctx, event.Draft{Data: event.RunStarted{HarnessID: ID, AdapterVersion: Version}}))
	go func() {
		defer close(r.ended)
		defer r.cancel()
		result, err := do(r.ctx)
		r.finish(t, result, err)
	}()
	return r
}

func (r *testRun) read() events {
	<-r.ended
	return r.events
}

func (s *stand) turn(runID, text string, in ...harness.File) harness.Turn {
	return harness.Turn{RunID: runID, ConversationID: conversationID, Message: text, Files: in, Uploads: slices.Clone(s.uploads)}
}

func (s *stand) start(t *testing.T, runID, text string, in ...harness.File) *testRun {
	t.Helper()
	return s.startTurn(t, s.turn(runID, text, in...))
}

func (s *stand) startTurn(t *testing.T, in harness.Turn) *testRun {
	t.Helper()
	r := newRun(t, in.RunID, time.Minute)
	return r.begin(t, func(ctx context.Context) (harness.Result, error) {
		return s.runtime.Stream(ctx, in, s.facades(r), r)
	})
}

// runTurn is run for a turn that has more than a text.
func (s *stand) runTurn(t *testing.T, in harness.Turn) events {
	t.Helper()
	return s.startTurn(t, in).read()
}

// run runs one turn and gives its events.
func (s *stand) run(t *testing.T, runID, text string, in ...harness.File) events {
	t.Helper()
	return s.start(t, runID, text, in...).read()
}

// decide answers the question that a run ended with, in a new run.
func (s *stand) decide(t *testing.T, runID string, before events, d event.ResumeDecision) events {
	t.Helper()
	q := before.wantInterrupted(t)
	d, err := d.Normal(q)
	must(t, err)
	m := event.NewMachine(before[0].RunID, conversationID, event.Bounds{}, s.thread.carried...)
	for _, e := range before {
		must(t, m.Accept(e))
	}
	in := harness.Decision{
		RunID: runID, ConversationID: conversationID, Interrupt: q, Revision: 1, Form: []byte(d.Form), Dismissed: d.Dismiss, Uploads: s.uploads,
	}
	for _, x := range d.Tools {
		in.Tools = append(in.Tools, harness.ToolDecision{ToolCallID: x.ToolCallID, Decision: x.Decision, Arguments: []byte(x.Arguments)})
	}
	var carried []event.Carried
	for _, c := range m.Pending() {
		c.Decision = d.On(q, c.ToolCallID)
		if c.Decision == "" {
			in.Carried = append(in.Carried, c.ToolCallID)
		}
		carried = append(carried, c)
	}
	s.thread.carried = carried
	r := newRun(t, runID, time.Minute, carried...)
	return r.begin(t, func(ctx context.Context) (harness.Result, error) {
		return s.runtime.Resume(ctx, in, s.facades(r), r)
	}).read()
}

// each decides the same on every call.
func each(q event.InterruptRequested, d event.Decision) event.ResumeDecision {
	var out event.ResumeDecision
	for _, a := range q.ToolApprovals {
		out.Tools = append(out.Tools, event.ToolDecision{ToolCallID: a.ToolCallID, Decision: d})
	}
	return out
}

// thread is the state of one thread.
type thread struct {
	mu      sync.Mutex
	codec   harness.Codec
	head    harness.Head
	loadErr error
	// commitErr is what the next commits answer.
	commitErr error
	// carried into the run that was resumed last.
	carried []event.Carried
}

func (t *thread) payload() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.head.Payload)
}

type runThread struct {
	*thread
	run *testRun
}

func (t runThread) Load(_ context.Context, c harness.Codec) (harness.Head, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.codec
	if have == (harness.Codec{}) {
		have = codec()
	}
	if t.head.Revision > 0 && c != have {
		return harness.Head{}, fault.New(fault.WorkerMismatch, "test")
	}
	return t.head, t.loadErr
}

func (t runThread) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	return t.commit(ctx, c, revision, payload, event.RunFinished{StopReason: "unknown"}, &t.run.committed)
}

func (t runThread) Interrupt(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	asked, ok := t.run.machine.Interrupt()
	if !ok {
		return fault.New(fault.Protocol, "test")
	}
	end := event.RunInterrupted{InterruptID: asked.InterruptID, Reason: asked.InterruptType.Reason()}
	return t.commit(ctx, c, revision, payload, end, &t.run.interrupted)
}

func (t runThread) commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte, end event.Data, how *bool) error {
	if err := t.run.cover(end); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), "test")
	case t.commitErr != nil:
		return t.commitErr
	case c != codec() || revision != t.head.Revision:
		return fault.New(fault.RevisionConflict, "test")
	}
	t.head = harness.Head{Revision: revision + 1, Payload: payload}
	t.codec = c
	*how = true
	return nil
}
