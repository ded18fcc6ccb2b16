package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const conversation = "conversation-1"

// stand is the adapter in a real session, with a scripted model on the real wire
// and facades that do what real ones promise, in memory.
type stand struct {
	*session.Session
	model  *model
	tools  *tools
	thread *thread
	files  files
}

func newStand(t *testing.T, change ...func(*harness.Construction)) *stand {
	t.Helper()
	s := &stand{model: newModel(t), tools: &tools{done: map[string]harness.ToolResult{}}, thread: &thread{}, files: files{}}
	s.Session = session.New(session.Config{
		Adapter: New(), ImageDigest: "sha256:x", BootNonce: "n", Logger: slog.New(slog.DiscardHandler),
	})
	c := harness.Construction{
		AgentID: "agent", Prompt: "be brief", Model: harness.ModelConfig{Alias: "main", Wire: harness.WireOpenAIChat, MaxOutputTokens: 100}, Options: json.RawMessage(`{"temperature":0.5}`),
		Tools: []harness.Tool{
			{ID: "fs.read_file", OfferedName: "fs_read_file", Description: "Reads.", InputSchema: json.RawMessage(`{"type":"object","maximum":9007199254740993}`)},
			{ID: "fs.list", OfferedName: "fs_list", InputSchema: json.RawMessage(`{"type":"object"}`)},
		},
		Limits: harness.Limits{ModelCalls: 8, ToolCalls: 8, StateBytes: 1 << 20},
	}
	for _, f := range change {
		f(&c)
	}
	err := s.Bind(t.Context(), session.Bind{
		Envelope: envelope("run-1"), ConversationID: conversation, Construction: c,
		Expected: session.Info{HarnessID: ID, AdapterVersion: Version, ImageDigest: "sha256:x", BootNonce: "n"},
	}, func() (session.Connector, error) { return s, nil })
	must(t, err)
	t.Cleanup(func() { must(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s
}

func envelope(runID string) fence.Envelope {
	return fence.Envelope{BindingID: "hs_binding", Generation: 1, RunID: runID, IdempotencyKey: "run", Deadline: time.Now().Add(time.Minute)}
}

// Connect implements session.Connector.
func (s *stand) Connect(_ fence.Envelope, _ []session.Token, point session.CommitPoint) (harness.Facades, error) {
	return harness.Facades{
		Model:  harness.Model{HTTP: s.model.client, BaseURL: s.model.server.URL + "/v1/", Alias: "main"},
		Tools:  s.tools,
		Thread: runThread{s.thread, point},
		Files:  s.files,
	}, nil
}

// Close implements session.Connector.
func (s *stand) Close() { s.model.client.CloseIdleConnections() }

func (s *stand) start(t *testing.T, runID, text string, in ...harness.File) *session.Run {
	t.Helper()
	r, err := s.Start(t.Context(), envelope(runID), harness.Turn{RunID: runID, ConversationID: conversation, Message: text, Files: in}, []session.Token{{}})
	must(t, err)
	return r
}

// run runs one turn and gives its events, which were judged a second time.
func (s *stand) run(t *testing.T, runID, text string, in ...harness.File) events {
	t.Helper()
	return read(t, s.start(t, runID, text, in...))
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
	return out
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

// answers is what the model does with one request.
type answers func(w http.ResponseWriter, r *http.Request)

// model is a Chat Completions endpoint that plays its answers in order.
type model struct {
	server *httptest.Server
	client *http.Client

	mu       sync.Mutex
	script   []answers
	requests []request
}

// request is what the endpoint was asked.
type request struct {
	header http.Header
	raw    string
	body   struct {
		Model         string  `json:"model"`
		Stream        bool    `json:"stream"`
		Temperature   float64 `json:"temperature"`
		MaxTokens     int     `json:"max_completion_tokens"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Messages []sent `json:"messages"`
		Tools    []struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
}

type sent struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	m.server = httptest.NewServer(m)
	m.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		m.client.CloseIdleConnections()
		m.server.Close()
	})
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	req := request{header: r.Header.Clone(), raw: string(raw)}
	if err != nil || json.Unmarshal(raw, &req.body) != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "not a request of this wire", http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.requests = append(m.requests, req)
	next := status(http.StatusTeapot, `{"error":{"message":"the script is over"}}`)
	if len(m.script) > 0 {
		next, m.script = m.script[0], m.script[1:]
	}
	m.mu.Unlock()
	next(w, r)
}

func (m *model) play(a ...answers) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script = append(m.script, a...)
}

func (m *model) asked() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// last messages that the model was sent.
func (m *model) last(t *testing.T) []sent {
	t.Helper()
	asked := m.asked()
	if len(asked) == 0 {
		t.Fatal("the model was not asked")
	}
	return asked[len(asked)-1].body.Messages
}

func status(code int, body string, header ...string) answers {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// stream sends chunks, given as the text of their data.
func stream(chunks ...string) answers {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, chunks...) }
}

// breaks sends chunks and resets the connection.
func breaks(chunks ...string) answers {
	return func(w http.ResponseWriter, _ *http.Request) {
		write(w, chunks...)
		panic(http.ErrAbortHandler)
	}
}

func write(w http.ResponseWriter, chunks ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, c := range chunks {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", c)
	}
	_ = http.NewResponseController(w).Flush()
}

const done = "[DONE]"

func delta(member string) string { return `{"choices":[{"index":0,"delta":{` + member + `}}]}` }

func content(text string) string { return delta(`"content":` + quote(text)) }

func reasoning(text string) string { return delta(`"reasoning_content":` + quote(text)) }

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":` + quote(reason) + `}]}`
}

func tokens(in, out int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)
}

func toolDelta(index int, id, name, args string) string {
	return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%s,"function":{"name":%s,"arguments":%s}}]`, index, quote(id), quote(name), quote(args)))
}

// answer1 is a whole answer of text.
func answer1(text string) answers { return stream(content(text), finish("stop"), done) }

// callsTool is a whole answer that calls one tool.
func callsTool(name, args string) answers {
	return stream(toolDelta(0, "id-0", name, args), finish("tool_calls"), done)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
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

// thread is the state of one thread.
type thread struct {
	mu      sync.Mutex
	head    harness.Head
	loadErr error
	// commitErr is what the next commits answer.
	commitErr error
}

func (t *thread) payload() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.head.Payload)
}

type runThread struct {
	*thread
	point session.CommitPoint
}

func (t runThread) Load(_ context.Context, c harness.Codec) (harness.Head, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c != codec() {
		return harness.Head{}, fault.New(fault.WorkerMismatch, "test")
	}
	return t.head, t.loadErr
}

func (t runThread) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	if _, err := t.point.Cover(); err != nil {
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
	t.point.Committed()
	return nil
}

// files are contents by handle.
type files map[string]string

func (f files) Read(_ context.Context, file harness.File, maxBytes int) ([]byte, error) {
	data, ok := f[file.Handle]
	switch {
	case !ok:
		return nil, fault.New(fault.NotFound, "test")
	case len(data) > maxBytes:
		return nil, fault.New(fault.RequestTooLarge, "test")
	}
	return []byte(data), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (runThread) Interrupt(context.Context, harness.Codec, uint64, []byte) error {
	return fault.New(fault.NotImplemented, "test")
}

func (files) Write(context.Context, harness.Upload, string, string, []byte) (string, error) {
	return "", fault.New(fault.NotImplemented, "test")
}
