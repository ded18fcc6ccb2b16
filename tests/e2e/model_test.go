package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
	"cofferdam.dev/tests/stack"
)

const modelKey = "model-key-canary-2b8e14d97ac05f63"

// endpoint is a model of somebody else, on the wire of OpenAI Chat Completions.
type endpoint struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.url = "http://" + l.Addr().String() + "/v1"
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: conditionTimeout}
	done := make(chan error, 1)
	go func() { done <- e.server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(e.server.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return e
}

// ServeHTTP answers with how many messages it was sent.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil || r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+modelKey {
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusUnauthorized)
		return
	}
	e.mu.Lock()
	e.requests, e.bodies = append(e.requests, r), append(e.bodies, string(raw))
	e.mu.Unlock()
	var in struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, chunk := range []string{
		`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"I was sent "},"finish_reason":null}]}`,
		fmt.Sprintf(`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%d messages."},"finish_reason":null}]}`, len(in.Messages)),
		`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`[DONE]`,
	} {
		_, _ = io.WriteString(w, "data: "+chunk+"\n\n") // the proxy may have gone
	}
}

// A model of somebody else gets its key from the model proxy, and nothing that
// authorizes anything here; nobody else sees the key.
func TestAModelElsewhereIsGivenItsKeyByTheProxyAlone(t *testing.T) {
	t.Parallel()
	model := newEndpoint(t)
	folder := shortFolder(t)
	key := filepath.Join(folder, "model.key")
	if err := os.WriteFile(key, []byte(modelKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := stack.Up(t.Context(), stack.Need(t), filepath.Join(folder, "data"), "--log-level", "debug",
		"--model-base-url", model.url, "--model", "some-model", "--model-key-file", key)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	user, err := s.Client(t.Context(), stack.User)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := s.OperatorClient(t.Context(), stack.Operator)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Stack: s, user: user, operator: operator}
	c := w.talk()
	first, second := c.tell(t, "hello"), c.tell(t, "again")
	if a, b := first.text(t), second.text(t); a != "I was sent 2 messages." || b != "I was sent 4 messages." { // with the prompt
		t.Errorf("it said %q and %q", a, b)
	}
	model.check(t)

	secret := secrets.Secrets{"key of the model": modelKey}
	worker := c.worker(t, first.BindingID)
	if found, err := procs.Holds(worker.PID, modelKey); err != nil || len(found) > 0 {
		t.Errorf("the worker's memory holds the key: %v, %v", found, err)
	}
	w.checkProcesses(t, secret)
	w.checkLogs(t, secret)
	for path, raw := range filesUnder(t, s.Data, ".") {
		if bytes.Contains(raw, []byte(modelKey)) {
			t.Errorf("%s holds the key", path)
		}
	}
}

// check looks at what the endpoint was sent.
func (e *endpoint) check(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.requests) != 2 {
		t.Fatalf("%d requests", len(e.requests))
	}
	for i, r := range e.requests {
		for name, values := range r.Header {
			text := strings.Join(values, " ")
			if name != "Authorization" && (strings.Contains(text, modelKey) || secrets.Token.MatchString(text)) ||
				strings.HasPrefix(name, "Cofferdam") || name == "Cookie" || name == "Traceparent" || name == "Baggage" {
				t.Errorf("the endpoint was sent the header %s", name)
			}
		}
		if secrets.Token.MatchString(e.bodies[i]) || strings.Contains(e.bodies[i], modelKey) || !strings.Contains(e.bodies[i], `"some-model"`) {
			t.Errorf("the endpoint was sent %s", e.bodies[i])
		}
	}
}
