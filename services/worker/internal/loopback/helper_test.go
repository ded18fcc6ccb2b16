package loopback_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stand is a server with a program before it and a proxy and a broker behind it.
type stand struct {
	*loopback.Server
	at     loopback.Endpoints
	proxy  *proxy
	broker *broker
	client *http.Client
}

func newStand(t *testing.T) *stand {
	t.Helper()
	tools := []harness.Tool{
		{ID: "fs.read", OfferedName: "fs_read", Description: "Reads.", InputSchema: json.RawMessage(`{"properties":{"n":{"maximum":9007199254740993}}}`), ReadOnly: true},
		{ID: "fs.write", OfferedName: "fs_write", InputSchema: json.RawMessage(`{"type":"object"}`), ApprovalRequired: true},
	}
	server, err := loopback.New(t.Context(), loopback.Config{Tools: tools, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(server.Close)
	s := &stand{Server: server, at: server.Renew(), proxy: newProxy(t), broker: &broker{}, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *stand) begin(t *testing.T, change ...func(*loopback.RunConfig)) (*loopback.Run, *recorder) {
	t.Helper()
	rec := newRecorder()
	cfg := loopback.RunConfig{
		Tag: "t", Model: harness.Model{HTTP: s.proxy.client, RootURL: s.proxy.server.URL + "/", Alias: "main"}, Tools: s.broker,
		Limits: harness.Limits{ModelCalls: 20, ToolCalls: 20}, Emit: rec,
	}
	for _, f := range change {
		f(&cfg)
	}
	run, err := s.Begin(t.Context(), cfg)
	must(t, err)
	t.Cleanup(run.Close)
	return run, rec
}

// answer is what the program got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (s *stand) do(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+s.at.ModelKey)
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	res, err := s.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: string(b), err: err}
}

// post is a model call with tools offered.
func (s *stand) post(t *testing.T, path, body string, header ...string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, s.at.ModelBaseURL+path, body, header...)
}

// proxy is a modelproxy that answers as it is told.
type proxy struct {
	server *httptest.Server
	client *http.Client

	mu     sync.Mutex
	answer http.HandlerFunc
	asked  []*http.Request
	bodies []string
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{client: &http.Client{Transport: &http.Transport{}}}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.asked, p.bodies = append(p.asked, r), append(p.bodies, string(b))
		answer := p.answer
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		p.server.Close()
	})
	p.says(whole(`{"choices":[{"finish_reason":"stop"}]}`))
	return p
}

func (p *proxy) says(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = h
}

func (p *proxy) last() (*http.Request, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		return nil, ""
	}
	return p.asked[len(p.asked)-1], p.bodies[len(p.bodies)-1]
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked)
}

func whole(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

func status(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// stream sends events, given as the text of their data; reset breaks it then.
func stream(reset bool, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", e)
		}
		_ = http.NewResponseController(w).Flush()
		if reset {
			panic(http.ErrAbortHandler)
		}
	}
}

// broker is a ToolBroker.
type broker struct {
	mu     sync.Mutex
	calls  []harness.ToolCall
	answer func(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error)
}

func (b *broker) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	b.mu.Lock()
	b.calls = append(b.calls, c)
	answer := b.answer
	b.mu.Unlock()
	if answer != nil {
		return answer(ctx, c)
	}
	return harness.ToolResult{Result: json.RawMessage(`{"content":[{"type":"text","text":"done"}],"structuredContent":{"n":9007199254740993}}`)}, nil
}

func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// recorder judges the events.
type recorder struct {
	mu      sync.Mutex
	machine *event.Machine
	events  []event.Data
}

func newRecorder() *recorder {
	r := &recorder{machine: event.NewMachine("run-1", "conversation-1", event.Bounds{}, event.Carried{ToolCallID: "carried"})}
	if err := r.Emit(context.Background(), event.Draft{Data: event.RunStarted{HarnessID: "acp", AdapterVersion: "1"}}); err != nil {
		panic(err)
	}
	return r
}

func (r *recorder) Emit(ctx context.Context, d event.Draft) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.machine.Accept(r.machine.Stamp(d, time.Unix(1, 0).UTC())); err != nil {
		return err
	}
	r.events = append(r.events, d.Data)
	return nil
}

func (r *recorder) types() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.events[1:] {
		out = append(out, string(e.Type()))
	}
	return strings.Join(out, " ")
}

// connect is a program's MCP client.
func (s *stand) connect(t *testing.T) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "program", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.at.MCPURL, HTTPClient: s.client, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}
