package stdio

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
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
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/session"
	"cofferdam.dev/services/worker/internal/stdio/stdiotest"
)

// programEnv makes the test binary one of the programs below.
const programEnv = "STDIO_TEST_PROGRAM"

func TestMain(m *testing.M) {
	runnertest.Main()
	if name := os.Getenv(programEnv); name != "" {
		os.Exit(runProgram(name))
	}
	goleak.VerifyTestMain(m)
}

const conversation = "conversation-1"

// stand is the adapter in a real session, with facades that do what real ones
// promise, in memory.
type stand struct {
	*session.Session
	// world is nil where the program runs behind a runner.
	world *stdiotest.World
	// processes of its programs.
	processes    func() []int
	workspace    string
	thread       *heads
	tools        *tools
	memory       *memory
	files        *files
	point        session.CommitPoint
	logs         *logs
	adapter      *Adapter
	construction harness.Construction
}

type change struct {
	preset       func(*Preset)
	construction func(*harness.Construction)
	endpoint     Endpoint
	manifests    manifest.Manifests
	// world is another one than that of plain processes.
	world hosted.World
}

// newStand hosts the program of a name.
func newStand(t *testing.T, program string, c change) *stand {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	preset, err := ParsePreset([]byte(`{"command":"` + self + `","env":{"` + programEnv + `":"` + program + `","GORACE":"atexit_sleep_ms=0"},"cancel_grace":"300ms"}`))
	must(t, err)
	if c.preset != nil {
		c.preset(&preset)
	}
	s := &stand{thread: &heads{}, tools: &tools{}, memory: &memory{}, files: &files{}, logs: &logs{}, workspace: t.TempDir()}
	if c.world == nil {
		s.world = stdiotest.NewWorld(t)
		c.world, s.processes = s.world, s.world.Processes
	} else {
		mark := rand.Text()
		preset.Env["MARK"] = mark
		s.processes = func() []int { return stdiotest.Processes("MARK=" + mark) }
	}
	adapter, err := New(Config{
		World: c.world, Preset: preset, Endpoint: c.endpoint, Workspace: s.workspace, Logger: s.logger(),
	})
	must(t, err)
	adapter.maxLines = 10_000
	s.adapter = adapter
	s.Session = session.New(session.Config{
		Bounds:  event.Bounds{RunEvents: 1000},
		Adapter: adapter, ImageDigest: "sha256:x", BootNonce: "n", Logger: slog.New(slog.NewTextHandler(s.logs, nil)), Workspace: s.workspace,
	})
	construction := harness.Construction{
		AgentID: "agent-1", AgentName: "Agent", Prompt: "Be brief.", Interrupts: harness.InterruptPolicy{FormInput: true, ToolApproval: true},
		Model:        harness.ModelConfig{Alias: "main", Wire: harness.WireOpenAIChat},
		MemoryScopes: []harness.MemoryScope{harness.MemoryUser},
		Tools: []harness.Tool{
			{ID: "fs.read", OfferedName: "fs_read", InputSchema: json.RawMessage(`{"type":"object"}`)},
			{ID: "fs.write", OfferedName: "fs_write", InputSchema: json.RawMessage(`{"type":"object"}`), ApprovalRequired: true},
		},
		Limits: harness.Limits{ModelCalls: 8, ToolCalls: 8, StateBytes: 1 << 20},
	}
	if c.construction != nil {
		c.construction(&construction)
	}
	s.construction = construction
	must(t, s.Bind(t.Context(), session.Bind{
		Envelope: envelope("run-1", time.Minute), ConversationID: conversation, Construction: construction, Manifests: c.manifests,
		Expected: session.Info{HarnessID: ID, AdapterVersion: Version, ImageDigest: "sha256:x", BootNonce: "n"},
	}, func() (session.Connector, error) { return s, nil }))
	t.Cleanup(func() { must(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s
}

func envelope(runID string, d time.Duration) fence.Envelope {
	return fence.Envelope{BindingID: "hs_binding", Generation: 1, RunID: runID, IdempotencyKey: "run", Deadline: time.Now().Add(d)}
}

// Connect implements session.Connector.
func (s *stand) Connect(_ fence.Envelope, _ []session.Token, point session.CommitPoint) (harness.Facades, error) {
	s.point = point
	return s.facades(), nil
}

func (s *stand) facades() harness.Facades {
	return harness.Facades{Tools: s.tools, Thread: runThread{s.thread, s.point}, Memory: s.memory, Files: s.files}
}

func (s *stand) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Close implements session.Connector.
func (*stand) Close() {}

func (s *stand) start(t *testing.T, runID, text string, d time.Duration) *session.Run {
	t.Helper()
	r, err := s.Start(t.Context(), envelope(runID, d), harness.Turn{RunID: runID, ConversationID: conversation, Message: text, Deadline: time.Now().Add(d)}, []session.Token{{}})
	must(t, err)
	return r
}

// run runs one turn and gives its events, which were judged a second time.
func (s *stand) run(t *testing.T, runID, text string) events {
	t.Helper()
	return s.read(t, s.start(t, runID, text, 30*time.Second))
}

func (s *stand) read(t *testing.T, r *session.Run) events {
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
	if pids := s.processes(); len(pids) > 0 {
		t.Errorf("%d processes run after the turn", len(pids))
	}
	return out
}

// read1 reads the rest of a run that was read before.
func (*stand) read1(t *testing.T, r *session.Run) events {
	t.Helper()
	var out events
	for {
		batch, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		out = append(out, batch...)
	}
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
	out := ""
	for _, d := range of[event.TextDelta](e) {
		out += d.Delta
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

type heads struct {
	mu   sync.Mutex
	head harness.Head
	// interrupted counts the interrupts that were committed.
	interrupted int
}

type runThread struct {
	*heads
	point session.CommitPoint
}

func (t runThread) Load(context.Context, harness.Codec) (harness.Head, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head, nil
}

func (t runThread) Commit(_ context.Context, _ harness.Codec, revision uint64, payload []byte) error {
	if t.point != nil {
		if _, err := t.point.Cover(); err != nil {
			return err
		}
	}
	if err := t.move(revision, payload); err != nil {
		return err
	}
	if t.point != nil {
		t.point.Committed()
	}
	return nil
}

func (t runThread) Interrupt(_ context.Context, _ harness.Codec, revision uint64, payload []byte) error {
	if err := t.move(revision, payload); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupted++
	return nil
}

func (t *heads) move(revision uint64, payload []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if revision != t.head.Revision {
		return fault.New(fault.RevisionConflict, "test")
	}
	t.head = harness.Head{Revision: revision + 1, Payload: payload}
	return nil
}

func (t *heads) state() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.head.Payload) == 0 {
		return ""
	}
	return string(t.head.Payload[1:])
}

type tools struct {
	mu    sync.Mutex
	calls []string
	call  func(context.Context, harness.ToolCall) (harness.ToolResult, error)
}

func (t *tools) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	t.mu.Lock()
	t.calls = append(t.calls, c.CallID+" "+c.ToolID+" "+string(c.Arguments))
	call := t.call
	t.mu.Unlock()
	if call != nil {
		return call(ctx, c)
	}
	return harness.ToolResult{Result: json.RawMessage(`{"content":[{"type":"text","text":"contents"}]}`)}, nil
}

func (t *tools) seen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.calls, "\n")
}

type memory struct {
	harness.Memory // what these tests do not use

	mu      sync.Mutex
	records map[string]harness.MemoryRecord
}

func (m *memory) Get(_ context.Context, _ harness.MemoryScope, key string) (harness.MemoryRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[key]
	if !ok {
		return r, fault.New(fault.NotFound, "test")
	}
	return r, nil
}

func (m *memory) Put(_ context.Context, _ string, _ harness.MemoryScope, key string, r harness.MemoryRecord) (harness.MemoryWritten, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[key].Revision != r.Revision {
		return harness.MemoryWritten{}, fault.New(fault.MemoryRevisionConflict, "test")
	}
	r.Revision++
	m.records = map[string]harness.MemoryRecord{key: r}
	return harness.MemoryWritten{Revision: r.Revision}, nil
}

type files struct{ written string }

func (*files) Read(context.Context, harness.File, int) ([]byte, error) { return []byte("file"), nil }

func (f *files) Write(_ context.Context, u harness.Upload, name, _ string, content []byte) (string, error) {
	f.written = u.Handle + " " + name + " " + string(content)
	return "object-1", nil
}

// logs is what was logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program is the other side of the line protocol.
type program struct{ in *bufio.Reader }

// runProgram is what the test binary does as a program.
func runProgram(name string) int {
	p := &program{in: bufio.NewReader(os.Stdin)}
	do, ok := programs()[name]
	if !ok {
		return 99
	}
	do(p)
	return 0
}

func (*program) write(text string) { _, _ = os.Stdout.WriteString(text) } // whoever reads has gone

func (p *program) say(format string, args ...any) { p.write(fmt.Sprintf(format, args...) + "\n") }

// read gives the next request, or ends the program where there is none.
func (p *program) read() request {
	text, err := p.in.ReadBytes('\n')
	var r request
	if err != nil || json.Unmarshal(text, &r) != nil {
		os.Exit(3)
	}
	return r
}

// request has what the programs look at.
type request struct {
	Type       string          `json:"type"`
	Message    string          `json:"message"`
	State      []byte          `json:"state"`
	ToolCallID string          `json:"tool_call_id"`
	Result     json.RawMessage `json:"result"`
	ObjectID   string          `json:"object_id"`
	Revision   uint64          `json:"revision"`
	Record     *record         `json:"record"`
	Files      []file          `json:"files"`
	Error      *failed         `json:"error"`
	Decision   decision        `json:"decision"`
	Model      model           `json:"model"`
}

// begin says ready and reads what the turn is.
func (p *program) begin() request {
	p.say(`{"type":"ready","protocol":1}`)
	p.read()
	return p.read()
}

func (p *program) text(text string) {
	p.say(`{"type":"event","event":{"type":"text.started","data":{"message_id":"m","role":"assistant"}}}`)
	p.delta(text)
	p.say(`{"type":"event","event":{"type":"text.finished","data":{"message_id":"m"}}}`)
}

func (p *program) delta(text string) {
	quoted, _ := json.Marshal(text)
	p.say(`{"type":"event","event":{"type":"text.delta","data":{"message_id":"m","delta":%s}}}`, quoted)
}

func (p *program) commit(state string) {
	quoted, _ := json.Marshal([]byte(state))
	p.say(`{"type":"commit","state":%s,"stop_reason":"stop"}`, quoted)
}
