package native

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const conversationID = "conversation-1"

// stand is a runtime of the adapter with a scripted model on the real wire and
// facades that do what real ones promise, in memory.
type stand struct {
	runtime harness.Runtime
	model   *fakeModel
	tools   *tools
	thread  *thread
	files   *files
	memory  *memory
	uploads []harness.Upload
}

func construction() harness.Construction {
	return harness.Construction{
		AgentID: "agent", AgentName: "Agent", Prompt: "be brief", Options: json.RawMessage(`{"temperature":0.5,"model_retries":0}`),
		Model: harness.ModelConfig{Alias: "main", Wire: harness.WireOpenAIChat, MaxOutputTokens: 100},
		Tools: []harness.Tool{
			{ID: "fs.read_file", OfferedName: "fs_read_file", Description: "Reads.", InputSchema: json.RawMessage(`{"type":"object","maximum":9007199254740993}`)},
			{ID: "fs.list", OfferedName: "fs_list", InputSchema: json.RawMessage(`{"type":"object"}`)},
		},
		Limits: harness.Limits{ModelCalls: 8, ToolCalls: 8, StateBytes: 1 << 20},
	}
}

func newStand(t *testing.T, change ...func(*harness.Construction)) *stand {
	t.Helper()
	return standIn(t, t.TempDir(), change...)
}

func standIn(t *testing.T, workspace string, change ...func(*harness.Construction)) *stand {
	t.Helper()
	c := construction()
	for _, f := range change {
		f(&c)
	}
	s := &stand{model: newModel(t), tools: &tools{done: map[string]harness.ToolResult{}}, thread: &thread{}, files: newFiles(), memory: newMemory()}
	s.model.path = pathOf(c.Model.Wire)
	var err error
	s.runtime, err = New(Config{Workspace: workspace}).Initialize(t.Context(), c)
	must(t, err)
	t.Cleanup(func() { must(t, s.runtime.Cleanup(context.WithoutCancel(t.Context()))) })
	return s
}

func pathOf(w harness.Wire) string {
	switch w {
	case harness.WireOpenAIResponses:
		return "/v1/responses"
	case harness.WireAnthropicMessages:
		return "/v1/messages"
	default:
		return "/v1/chat/completions"
	}
}

// options sets the adapter's options.
func options(raw string) func(*harness.Construction) {
	return func(c *harness.Construction) { c.Options = json.RawMessage(raw) }
}

func (s *stand) facades(r *testRun) harness.Facades {
	return harness.Facades{
		Model:  harness.Model{HTTP: s.model.client, BaseURL: s.model.server.URL + "/v1/", RootURL: s.model.server.URL + "/", Alias: "main"},
		Tools:  s.tools,
		Thread: runThread{s.thread, r},
		Files:  s.files,
		Memory: s.memory,
	}
}

type events []event.Event

func (e events) types() string {
	var out []string
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

func (e events) wantFinished(t *testing.T, stopReason string) {
	t.Helper()
	if e.end() != (event.RunFinished{StopReason: stopReason}) {
		t.Fatalf("the run ended by %#v", e.end())
	}
}

func (e events) wantError(t *testing.T, code fault.Code) event.RunError {
	t.Helper()
	got, ok := e.end().(event.RunError)
	if !ok || got.Code != string(code) || got.Message != code.Message() {
		t.Fatalf("the run ended by %#v, want %s", e.end(), code)
	}
	return got
}

// wantInterrupted gives the question that the run ended with.
func (e events) wantInterrupted(t *testing.T) event.InterruptRequested {
	t.Helper()
	asked := of[event.InterruptRequested](e)
	if _, ok := e.end().(event.RunInterrupted); !ok || len(asked) != 1 {
		t.Fatalf("the run ended by %#v: %s", e.end(), e.types())
	}
	return asked[0]
}

// tools is a broker: a call happens once for its id.
type tools struct {
	// answer is what a tool gives; nil says "done".
	answer func(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error)

	mu    sync.Mutex
	calls []harness.ToolCall
	done  map[string]harness.ToolResult
}

func (b *tools) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	b.mu.Lock()
	res, replayed := b.done[c.CallID]
	if !replayed {
		b.calls = append(b.calls, c)
	}
	answer := b.answer
	b.mu.Unlock()
	if replayed {
		return res, nil
	}
	res = harness.ToolResult{Result: json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`)}
	if answer != nil {
		var err error
		if res, err = answer(ctx, c); err != nil {
			return harness.ToolResult{}, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[c.CallID] = res
	return res, nil
}

func (b *tools) called() []harness.ToolCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// files are contents by handle, and what was written.
type files struct {
	mu      sync.Mutex
	content map[string]string
	written map[string]string
}

func newFiles() *files {
	return &files{content: map[string]string{}, written: map[string]string{}}
}

func (f *files) Read(_ context.Context, file harness.File, maxBytes int) ([]byte, error) {
	data, ok := f.content[file.Handle]
	switch {
	case !ok:
		return nil, fault.New(fault.NotFound, "test")
	case len(data) > maxBytes:
		return nil, fault.New(fault.RequestTooLarge, "test")
	}
	return []byte(data), nil
}

func (f *files) Write(_ context.Context, u harness.Upload, name, mimeType string, content []byte) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, again := f.written[u.Handle]; again {
		return "", fault.New(fault.HandleInvalid, "test")
	}
	f.written[u.Handle] = name + "|" + mimeType + "|" + string(content)
	return "obj-" + u.Handle, nil
}

// memory are records by scope and key. What is procedural needs an approval, of
// the calls in approved.
type memory struct {
	mu       sync.Mutex
	records  map[string]harness.MemoryRecord
	approved []string
	searched []string
}

func newMemory() *memory { return &memory{records: map[string]harness.MemoryRecord{}} }

func (m *memory) Get(_ context.Context, scope harness.MemoryScope, key string) (harness.MemoryRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[string(scope)+"/"+key]
	if !ok {
		return r, fault.New(fault.NotFound, "test")
	}
	return r, nil
}

func (m *memory) Search(_ context.Context, scope harness.MemoryScope, q harness.MemoryQuery) (harness.MemoryFound, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.searched = append(m.searched, fmt.Sprint(q.Text, " ", q.Limit))
	out := harness.MemoryFound{Rank: harness.MemoryByWords} // there is no endpoint
	for at, r := range m.records {
		if s, key, _ := strings.Cut(at, "/"); s == string(scope) && strings.Contains(string(r.Content), q.Text) {
			out.Matches = append(out.Matches, harness.MemoryMatch{Key: key, Kind: r.Kind, Revision: r.Revision, Excerpt: string(r.Content)})
		}
	}
	return out, nil
}

// stands finds the record of a change, or refuses it.
func (m *memory) stands(callID, at, kind string, revision uint64) error {
	r := m.records[at]
	switch {
	case (kind == "procedural" || r.Kind == "procedural") && !slices.Contains(m.approved, callID):
		return fault.New(fault.ApprovalRequired, "test")
	case r.Revision != revision:
		return fault.New(fault.MemoryRevisionConflict, "test")
	}
	return nil
}

func (m *memory) Put(_ context.Context, callID string, scope harness.MemoryScope, key string, r harness.MemoryRecord) (harness.MemoryWritten, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := string(scope) + "/" + key
	if err := m.stands(callID, at, r.Kind, r.Revision); err != nil {
		return harness.MemoryWritten{}, err
	}
	r.Revision++
	m.records[at] = r
	return harness.MemoryWritten{Revision: r.Revision, Redactions: strings.Count(string(r.Content), "[redacted]")}, nil
}

func (m *memory) Delete(_ context.Context, callID string, scope harness.MemoryScope, key string, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := string(scope) + "/" + key
	if err := m.stands(callID, at, "", revision); err != nil {
		return err
	}
	delete(m.records, at)
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
