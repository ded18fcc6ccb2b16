package native

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// answers is what the model does with one request.
type answers func(w http.ResponseWriter, r *http.Request)

// fakeModel is a Chat Completions endpoint that plays its answers in order.
type fakeModel struct {
	server *httptest.Server
	// path of the wire.
	path   string
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

func newModel(t *testing.T) *fakeModel {
	t.Helper()
	m := &fakeModel{path: "/v1/chat/completions"}
	m.server = httptest.NewServer(m)
	m.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		m.client.CloseIdleConnections()
		m.server.Close()
	})
	return m
}

func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	req := request{header: r.Header.Clone(), raw: string(raw)}
	chat := m.path == "/v1/chat/completions" && !bytes.Contains(raw, []byte(`"content":[`)) // what else there is is read by its wire
	if err != nil || !json.Valid(raw) || chat && json.Unmarshal(raw, &req.body) != nil || r.URL.Path != m.path {
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
	next(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, raw)))
}

// bodyKey is under which an answer finds the request's body.
type bodyKey struct{}

func (m *fakeModel) play(a ...answers) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script = append(m.script, a...)
}

func (m *fakeModel) asked() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// last messages that the model was sent.
func (m *fakeModel) last(t *testing.T) []sent {
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
