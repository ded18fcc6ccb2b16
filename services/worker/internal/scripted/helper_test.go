package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

// endingEnv makes the test binary play a script that ends it.
const endingEnv = "SCRIPTED_TEST_ENDING"

func TestMain(m *testing.M) {
	if script := os.Getenv(endingEnv); script != "" {
		playAlone(script)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// playAlone plays a hostile script outside of any session.
func playAlone(text string) {
	rt, err := New().Initialize(context.Background(), harness.Construction{Options: json.RawMessage(`{"hostile":true}`)})
	if err == nil {
		_, err = rt.Stream(context.Background(), harness.Turn{RunID: "run-1", Message: text}, harness.Facades{Thread: &heads{}}, &collector{})
	}
	if err != nil {
		os.Exit(1)
	}
}

const conversation = "conversation-1"

// collector is an emitter that keeps what it gets.
type collector struct {
	mu     sync.Mutex
	drafts []event.Draft
}

func (c *collector) Emit(_ context.Context, d event.Draft) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drafts = append(c.drafts, d)
	return nil
}

func (c *collector) text() string {
	out := ""
	for _, d := range c.drafts {
		if delta, ok := d.Data.(event.TextDelta); ok {
			out += delta.Delta
		}
	}
	return out
}

func (c *collector) types() string {
	out := make([]string, 0, len(c.drafts))
	for _, d := range c.drafts {
		out = append(out, string(d.Data.Type()))
	}
	return strings.Join(out, " ")
}

// stand is the adapter in a real session, with facades in memory.
type stand struct {
	*session.Session
	heads  *heads
	tools  *tools
	memory *memory
}

func newStand(t *testing.T, options string) *stand {
	t.Helper()
	s := &stand{heads: &heads{}, tools: &tools{}, memory: &memory{}}
	s.Session = session.New(session.Config{
		Adapter: New(), ImageDigest: "sha256:x", BootNonce: "n", Logger: slog.New(slog.DiscardHandler), Bounds: event.Bounds{RunEvents: 2000},
	})
	must(t, s.Bind(t.Context(), session.Bind{
		Envelope: envelope("run-1"), ConversationID: conversation, ShutdownGrace: 200 * time.Millisecond, Construction: construction(options),
		Expected: session.Info{HarnessID: ID, AdapterVersion: Version, ImageDigest: "sha256:x", BootNonce: "n"},
	}, func() (session.Connector, error) { return s, nil }))
	t.Cleanup(func() { must(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s
}

func construction(options string) harness.Construction {
	return harness.Construction{
		AgentID: "agent-1", Options: json.RawMessage(options), Interrupts: harness.InterruptPolicy{FormInput: true, ToolApproval: true},
		Limits: harness.Limits{StateBytes: 1 << 20},
	}
}

func envelope(runID string) fence.Envelope {
	return fence.Envelope{BindingID: "hs_binding", Generation: 1, RunID: runID, IdempotencyKey: "run", Deadline: time.Now().Add(5 * time.Minute)}
}

// Connect implements session.Connector.
func (s *stand) Connect(_ fence.Envelope, _ []session.Token, point session.CommitPoint) (harness.Facades, error) {
	return s.facades(&heads{at: s.heads, point: point}), nil
}

func (s *stand) facades(thread harness.ThreadState) harness.Facades {
	return harness.Facades{Tools: s.tools, Thread: thread, Memory: s.memory, Files: files{}}
}

// Close implements session.Connector.
func (*stand) Close() {}

func (s *stand) start(t *testing.T, runID, text string) *session.Run {
	t.Helper()
	r, err := s.Start(t.Context(), envelope(runID), harness.Turn{
		RunID: runID, ConversationID: conversation, Message: text, Deadline: time.Now().Add(5 * time.Minute),
		Files: []harness.File{{Handle: "h", DisplayName: "a.txt"}}, Uploads: []harness.Upload{{Handle: "u", MaxBytes: 100}},
	}, []session.Token{{}})
	must(t, err)
	return r
}

// run runs one turn and gives its events, which were judged a second time.
func (s *stand) run(t *testing.T, runID, text string) events {
	t.Helper()
	return read(t, s.start(t, runID, text))
}

func read(t *testing.T, r *session.Run) events {
	t.Helper()
	m := event.NewMachine(r.Envelope().RunID, conversation, event.Bounds{})
	var out events
	for {
		batch, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		for _, e := range batch {
			must(t, m.Accept(e))
		}
		out = append(out, batch...)
	}
	if _, ok := m.Terminal(); !ok {
		t.Fatal("the run has no terminal")
	}
	return out
}

type events []event.Event

func (e events) types() string {
	out := make([]string, 0, len(e))
	for _, e := range e {
		out = append(out, string(e.Type()))
	}
	return strings.Join(out, " ")
}

func (e events) end() event.Data { return e[len(e)-1].Data }

func (e events) text() string {
	out := ""
	for _, e := range e {
		if d, ok := e.Data.(event.TextDelta); ok {
			out += d.Delta
		}
	}
	return out
}

func (e events) wantFinished(t *testing.T) {
	t.Helper()
	if e.end() != (event.RunFinished{StopReason: "stop"}) {
		t.Fatalf("the run ended by %#v", e.end())
	}
}

func (e events) wantError(t *testing.T, code fault.Code) {
	t.Helper()
	got, ok := e.end().(event.RunError)
	if !ok || got.Code != string(code) || got.Message != code.Message() {
		t.Fatalf("the run ended by %#v, want %s", e.end(), code)
	}
}

// heads is a thread state; one for a run has its point, and writes at another.
type heads struct {
	mu    sync.Mutex
	head  harness.Head
	at    *heads
	point session.CommitPoint
}

func (h *heads) store() *heads {
	if h.at != nil {
		return h.at
	}
	return h
}

func (h *heads) Load(context.Context, harness.Codec) (harness.Head, error) {
	s := h.store()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head, nil
}

func (h *heads) Commit(_ context.Context, _ harness.Codec, revision uint64, payload []byte) error {
	if h.point != nil {
		if _, err := h.point.Cover(); err != nil {
			return err
		}
		defer h.point.Committed()
	}
	s := h.store()
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != s.head.Revision {
		return fault.New(fault.RevisionConflict, "test")
	}
	s.head = harness.Head{Revision: revision + 1, Payload: payload}
	return nil
}

func (h *heads) Interrupt(_ context.Context, _ harness.Codec, revision uint64, payload []byte) error {
	s := h.store()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = harness.Head{Revision: revision + 1, Payload: payload}
	return nil
}

type tools struct {
	mu    sync.Mutex
	calls []string
	call  func(context.Context, harness.ToolCall) (harness.ToolResult, error)
}

func (t *tools) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	t.mu.Lock()
	t.calls = append(t.calls, c.ToolID+" "+string(c.Arguments))
	call := t.call
	t.mu.Unlock()
	if call != nil {
		return call(ctx, c)
	}
	return harness.ToolResult{Result: json.RawMessage(`"contents"`)}, nil
}

type memory struct {
	harness.Memory // what these tests do not use

	mu     sync.Mutex
	record harness.MemoryRecord
}

func (m *memory) Get(context.Context, harness.MemoryScope, string) (harness.MemoryRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.record.Revision == 0 {
		return m.record, fault.New(fault.NotFound, "test")
	}
	return m.record, nil
}

func (m *memory) Put(_ context.Context, _ string, _ harness.MemoryScope, _ string, r harness.MemoryRecord) (harness.MemoryWritten, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Revision != m.record.Revision {
		return harness.MemoryWritten{}, fault.New(fault.MemoryRevisionConflict, "test")
	}
	m.record = r
	m.record.Revision++
	return harness.MemoryWritten{Revision: m.record.Revision}, nil
}

type files struct{}

func (files) Read(context.Context, harness.File, int) ([]byte, error) { return []byte("file"), nil }

func (files) Write(_ context.Context, u harness.Upload, name, _ string, _ []byte) (string, error) {
	return u.Handle + "-" + name, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
