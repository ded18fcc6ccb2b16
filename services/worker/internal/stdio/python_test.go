package stdio

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// endpoint is the demo model on loopback, behind a key that is good in one run.
type endpoint struct {
	mu     sync.Mutex
	key    string
	server *httptest.Server
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{}
	model := demomodel.New()
	e.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		ok := e.key != "" && r.Header.Get("Authorization") == "Bearer "+e.key
		e.mu.Unlock()
		if !ok {
			http.Error(w, "no run", http.StatusForbidden)
			return
		}
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(e.server.Close)
	return e
}

// Open implements Endpoint.
func (e *endpoint) Open(context.Context, harness.Model, harness.Limits) (Access, error) {
	e.set("key-of-a-run")
	return Access{
		BaseURL: e.server.URL + "/v1", RootURL: e.server.URL, Key: "key-of-a-run", Close: func() { e.set("") },
	}, nil
}

func (e *endpoint) set(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.key = key
}

const example = "../../../../examples/python-agent"

// newPython hosts the example as it ships, from where it lies.
func newPython(t *testing.T) *stand {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("the example needs python3: ", err)
	}
	script, err := filepath.Abs(filepath.Join(example, "agent.py"))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(example, "preset.json"))
	must(t, err)
	ships, err := ParsePreset(text)
	must(t, err)
	return newStand(t, "", change{endpoint: newEndpoint(t), preset: func(p *Preset) {
		*p = ships
		p.Command = python
		p.Args = []string{ships.Args[0], script}
	}})
}

func TestPythonExample(t *testing.T) {
	t.Parallel()
	s := newPython(t)
	text := s.run(t, "run-1", ">>say Hello, world.")
	text.wantFinished(t)
	if text.text() != "Hello, world." || len(of[event.TextDelta](text)) < 2 {
		t.Errorf("said %q in %d pieces", text.text(), len(of[event.TextDelta](text)))
	}
	if second := s.run(t, "run-2", "What do you remember?"); !strings.Contains(second.text(), "Hello, world.") {
		t.Errorf("it remembers %q", second.text())
	}
	call := s.run(t, "run-3", ">>call fs.read {\"path\":\"a\"}\n>>call fs.read {\"path\":\"b\"}\n>>say Done.")
	call.wantFinished(t)
	if len(of[event.ToolFinished](call)) != 2 || !strings.Contains(call.text(), "contents") || !strings.HasSuffix(call.text(), "Done.") {
		t.Errorf("events %s, said %q", call.types(), call.text())
	}
	s.tools.call = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{}, fault.New(fault.ToolDenied, "test")
	}
	if denied := s.run(t, "run-4", ">>call fs.read {}"); !strings.Contains(denied.text(), "tool_denied") {
		t.Errorf("said %q", denied.text())
	}
}

func TestPythonExampleFails(t *testing.T) {
	t.Parallel()
	s := newPython(t)
	s.run(t, "run-1", ">>error 400").wantError(t, fault.ModelFailed)
	s.run(t, "run-2", ">>error 429").wantError(t, fault.RateLimited)
	s.run(t, "run-3", ">>error 503").wantError(t, fault.ModelUnavailable)
	s.run(t, "run-4", ">>say half\n>>reset").wantError(t, fault.ModelFailed)
	s.run(t, "run-5", ">>say whole").wantFinished(t)
}

func TestPythonExampleIsCancelled(t *testing.T) {
	t.Parallel()
	s := newPython(t)
	r := s.start(t, "run-1", ">>say begun\n>>sleep 60000", time.Minute)
	var got events
	for !strings.Contains(got.text(), "begun") {
		batch, err := r.Next(t.Context())
		must(t, err)
		got = append(got, batch...)
	}
	began := time.Now()
	s.Cancel(t.Context(), "run-1", event.CancelledByClient)
	for {
		batch, err := r.Next(t.Context())
		if err != nil {
			break
		}
		got = append(got, batch...)
	}
	if end, ok := got.end().(event.RunCancelled); !ok || end.Reason != event.CancelledByClient {
		t.Errorf("ended by %#v", got.end())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestPythonExampleAsksApproval(t *testing.T) {
	t.Parallel()
	s := newPython(t)
	rt, first := s.initialized(t), &collector{}
	_, err := rt.Stream(t.Context(), harness.Turn{
		RunID: "run-1", ConversationID: conversation, Message: ">>call fs.write {\"n\":1}\n>>call fs.read {}\n>>call fs.write {\"n\":2}\n>>say Done.",
		Deadline: time.Now().Add(time.Minute),
	}, s.facades(), first)
	must(t, err)
	asked, ok := first.drafts[len(first.drafts)-1].Data.(event.InterruptRequested)
	if !ok || len(asked.ToolApprovals) != 2 || len(s.tools.calls) != 1 {
		t.Fatalf("events %s, the tool saw %q", first.types(), s.tools.seen())
	}
	second := &collector{}
	_, err = s.initialized(t).Resume(t.Context(), harness.Decision{
		RunID: "run-2", ConversationID: conversation, Interrupt: asked, Revision: 1, Deadline: time.Now().Add(time.Minute),
		Tools: []harness.ToolDecision{
			{ToolCallID: asked.ToolApprovals[0].ToolCallID, Decision: event.DecisionEdit, Arguments: []byte(`{"n":7}`)},
			{ToolCallID: asked.ToolApprovals[1].ToolCallID, Decision: event.DecisionReject},
		},
	}, s.facades(), second)
	must(t, err)
	if !strings.HasSuffix(s.tools.seen(), ` fs.write {"n":7}`) || len(s.tools.calls) != 2 {
		t.Errorf("the tool saw %q", s.tools.seen())
	}
	if !strings.Contains(second.text(), "A person did not allow this call.") || !strings.HasSuffix(second.text(), "Done.") {
		t.Errorf("said %q", second.text())
	}
}

// The example stays short enough to be read in one sitting.
func TestPythonExampleIsShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(example, "agent.py"))
	must(t, err)
	if n := strings.Count(string(text), "\n"); n > 100 {
		t.Errorf("it has %d lines", n)
	}
}
