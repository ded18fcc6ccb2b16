package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	bindingID    = "hs_the_binding_under_test"
	conversation = "conversation-1"
	runTime      = time.Minute
)

// script is what a harness does in a run.
type script func(ctx context.Context, t harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error)

// answer is what a harness does in a run that carries a decision out.
type answer func(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error)

// adapter is scripted, and counts what is done to it.
type adapter struct {
	mu     sync.Mutex
	script script
	answer answer
	// rawCredential of the descriptor.
	rawCredential string
	// decisions that were given to Resume.
	decisions []harness.Decision

	initialize func(context.Context, harness.Construction) error
	cleanup    func(context.Context) error
	health     error

	initialized, streams, cleanups, running atomic.Int64
}

func (a *adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{ID: "scripted", AdapterVersion: "1.2.3", ExecutionMode: "sandbox_pod", RawCredential: a.rawCredential}
}

func (a *adapter) Health(context.Context) error { return a.health }

func (a *adapter) Initialize(ctx context.Context, c harness.Construction) (harness.Runtime, error) {
	a.initialized.Add(1)
	if a.initialize != nil {
		if err := a.initialize(ctx, c); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *adapter) play(s script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.script = s
}

func (a *adapter) Stream(ctx context.Context, t harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	a.streams.Add(1)
	a.running.Add(1)
	defer a.running.Add(-1)
	a.mu.Lock()
	s := a.script
	a.mu.Unlock()
	return s(ctx, t, f, emit)
}

func (a *adapter) Resume(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	a.streams.Add(1)
	a.running.Add(1)
	defer a.running.Add(-1)
	a.mu.Lock()
	a.decisions = append(a.decisions, d)
	s := a.answer
	a.mu.Unlock()
	return s(ctx, d, f, emit)
}

func (a *adapter) playAnswer(s answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = s
}

func (a *adapter) Cleanup(ctx context.Context) error {
	a.cleanups.Add(1)
	if a.cleanup != nil {
		return a.cleanup(ctx)
	}
	return nil
}

// connector gives facades whose thread state commits at once.
type connector struct {
	mu     sync.Mutex
	tokens []Token
	err    error
	closed bool
	// commit replaces what a commit answers; nil is success.
	commit func() error
	// revision of the head that stands.
	revision uint64
	// moves says that the head moves and that the run is cancelled all the same.
	moves bool
	// more are facades besides the thread's.
	more harness.Facades
}

func (c *connector) Connect(_ fence.Envelope, tokens []Token, point CommitPoint) (harness.Facades, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = tokens
	f := c.more
	f.Thread = &thread{c, point}
	return f, c.err
}

func (c *connector) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

type thread struct {
	*connector
	point CommitPoint
}

func (*thread) Load(context.Context, harness.Codec) (harness.Head, error) { return harness.Head{}, nil }

func (t *thread) Commit(context.Context, harness.Codec, uint64, []byte) error {
	if _, err := t.point.Cover(); err != nil {
		return err
	}
	return t.move(func(uint64) { t.point.Committed() })
}

func (t *thread) Interrupt(context.Context, harness.Codec, uint64, []byte) error {
	if _, _, err := t.point.CoverInterrupt(); err != nil {
		return err
	}
	return t.move(t.point.Interrupted)
}

func (t *thread) move(done func(revision uint64)) error {
	t.mu.Lock()
	commit := t.commit
	t.mu.Unlock()
	if commit != nil {
		if err := commit(); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision++
	if t.moves {
		t.point.Moved()
		return fault.New(fault.Cancelled, "test")
	}
	done(t.revision)
	return nil
}

// worker is a session with its scripted harness.
type worker struct {
	*Session
	adapter   *adapter
	connector *connector
}

func newWorker(t *testing.T, change ...func(*Config)) *worker {
	t.Helper()
	a := &adapter{}
	a.play(says("hello"))
	a.playAnswer(func(ctx context.Context, _ harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		return says("resumed")(ctx, harness.Turn{}, f, emit)
	})
	w := &worker{adapter: a, connector: &connector{}}
	cfg := Config{
		Adapter: a, ImageDigest: "sha256:image", BootNonce: "nonce-1", Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	w.Session = New(cfg)
	t.Cleanup(func() {
		if err := w.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return w
}

// bound is a worker that is bound to the run run-1.
func bound(t *testing.T, change ...func(*Config)) *worker {
	t.Helper()
	w := newWorker(t, change...)
	w.bind(t, right())
	return w
}

func (w *worker) bind(t *testing.T, b Bind) {
	t.Helper()
	if err := w.Bind(t.Context(), b, w.connect); err != nil {
		t.Fatal(err)
	}
}

func (w *worker) connect() (Connector, error) { return w.connector, nil }

func right() Bind {
	return Bind{
		Envelope: envelope("run-1"), ConversationID: conversation,
		Expected:   Info{HarnessID: "scripted", AdapterVersion: "1.2.3", ImageDigest: "sha256:image", BootNonce: "nonce-1"},
		Digest:     sha256.Sum256([]byte("request")),
		Capability: Capability{ID: "jti-1", IssuedAt: time.Unix(100, 0)},
		Tokens:     []Token{{Audience: "thread-state", Token: "bound"}},
	}
}

func envelope(runID string) fence.Envelope {
	return fence.Envelope{
		BindingID: bindingID, Epoch: 1, Generation: 2, RunID: runID, RequestID: "request", IdempotencyKey: "run",
		Deadline: time.Now().Add(runTime),
	}
}

func turn(runID, message string) harness.Turn {
	return harness.Turn{RunID: runID, ConversationID: conversation, Message: message, Deadline: time.Now().Add(runTime)}
}

var fresh = []Token{{Audience: "thread-state", Token: "fresh"}}

func (w *worker) start(t *testing.T, runID string) *Run {
	t.Helper()
	r, err := w.Start(t.Context(), envelope(runID), turn(runID, "hi"), fresh)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// says emits one message and commits.
func says(text string) script {
	return func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		if err := say(ctx, emit, "m", text); err != nil {
			return harness.Result{}, err
		}
		return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
	}
}

func say(ctx context.Context, emit harness.Emitter, id, text string) error {
	return emitAll(ctx, emit, event.TextStarted{MessageID: id}, event.TextDelta{MessageID: id, Delta: text}, event.TextFinished{MessageID: id})
}

func emitAll(ctx context.Context, emit harness.Emitter, data ...event.Data) error {
	for _, d := range data {
		if err := emit.Emit(ctx, event.Draft{Data: d}); err != nil {
			return err
		}
	}
	return nil
}

// waits emits that it began and then waits for the end of its run.
func waits(ctx context.Context, _ harness.Turn, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
	if err := emitAll(ctx, emit, event.TextStarted{MessageID: "m"}); err != nil {
		return harness.Result{}, err
	}
	<-ctx.Done()
	return harness.Result{}, ctx.Err()
}

// read reads a run to its end and judges every event a second time, as the
// control plane does.
func read(t *testing.T, r *Run, carried ...event.Carried) []event.Event {
	t.Helper()
	m := event.NewMachine(r.Envelope().RunID, conversation, event.Bounds{}, carried...)
	var out []event.Event
	for {
		events, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d events: %v", len(out), err)
		}
		if len(events) == 0 {
			t.Fatal("a frame without events")
		}
		for _, e := range events {
			if err := m.Accept(e); err != nil {
				t.Fatalf("event %d (%s): %v", e.Sequence, e.Type(), err)
			}
		}
		out = append(out, events...)
	}
	if _, ok := m.Terminal(); !ok {
		t.Fatal("the stream ended without a terminal")
	}
	return out
}

// ends reads a run and gives its terminal.
func ends(t *testing.T, r *Run, carried ...event.Carried) event.Data {
	t.Helper()
	events := read(t, r, carried...)
	return events[len(events)-1].Data
}

func cancelled(reason event.CancelReason, effects event.SideEffectStatus) event.RunCancelled {
	return event.RunCancelled{Reason: reason, SideEffectStatus: effects}
}

func wantEnd(t *testing.T, got, want event.Data) {
	t.Helper()
	if got != want {
		t.Errorf("the run ended by %#v, want %#v", got, want)
	}
}

// wantError checks a run.error by its code; its message is the code's.
func wantError(t *testing.T, got event.Data, code fault.Code) {
	t.Helper()
	e, ok := got.(event.RunError)
	if !ok || e.Code != string(code) || e.Message != code.Message() || e.Retryable != code.Retryable() {
		t.Errorf("the run ended by %#v, want run.error %s", got, code)
	}
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want code %q", err, want)
	}
}

func types(events []event.Event) string {
	out := ""
	for _, e := range events {
		out += fmt.Sprint(e.Type(), " ")
	}
	return out
}
