package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/process"
)

// sleeper as first argument makes the test binary a process to kill.
const sleeper = "demo-test-sleeper"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sleeper {
		<-time.After(time.Minute)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// world is a control plane that does what a test says, and the worker that it
// shows.
type world struct {
	t      *testing.T
	line   string
	worker *process.Process

	// What may go wrong.
	turns [2][]event.Data
	// generations of the two runs.
	generations [2]uint32
	// pid is what it shows of the worker.
	pid func() int
	// noticed is the generation that the binding has after the worker was killed.
	noticed uint32

	mu      sync.Mutex
	started int
	killed  bool // the model proxy
}

func committed() event.RunFinished {
	return event.RunFinished{StopReason: "stop", ThreadState: event.Committed(1, "snap")}
}

func said(text string) []event.Data {
	return []event.Data{
		event.TextStarted{MessageID: "m"}, event.TextDelta{MessageID: "m", Delta: text}, event.TextFinished{MessageID: "m"},
	}
}

func called(result string) []event.Data {
	raw, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": result}}})
	return []event.Data{
		event.ToolStarted{ToolCallID: "c", ToolName: "fs.read_text_file", Arguments: event.EmptyObject},
		event.ToolFinished{ToolCallID: "c", Result: event.Value(raw)},
	}
}

// join is a whole run.
func join(parts ...[]event.Data) []event.Data {
	out := []event.Data{event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"}}
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// newWorld is one in which everything goes well.
func newWorld(t *testing.T) *world {
	t.Helper()
	line := `A "line" with <signs> & more`
	w := &world{t: t, line: line, generations: [2]uint32{1, 2}, noticed: 2}
	w.turns[0] = join(called("first\n"+line+"\n"), said("it says "+line), []event.Data{committed()})
	w.turns[1] = join(said("I remember "+line), []event.Data{committed()})
	var err error
	w.worker, err = process.Start(t.Context(), process.Spec{Path: "/proc/self/exe", Args: []string{sleeper}})
	if err != nil {
		t.Fatal(err)
	}
	w.pid = w.worker.PID
	t.Cleanup(func() {
		if err := w.worker.Stop(0); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) gone() bool {
	select {
	case <-w.worker.Done():
		return true
	default:
		return false
	}
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var run int
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && path == "/api/v1/runs":
		w.started++
		_, _ = fmt.Fprintf(rw, `{"run_id":"run-%d","binding_id":"hs_1","epoch":0}`, w.started)
	case path == "/api/v1/bindings/hs_1":
		generation := uint32(1)
		if w.gone() {
			generation = w.noticed
		}
		_, _ = fmt.Fprintf(rw, `{"binding_id":"hs_1","lease_generation":%d,"sandbox":{"pid":%d}}`, generation, w.pid())
	case strings.HasSuffix(path, "/stream"):
		if _, err := fmt.Sscanf(path, "/api/v1/runs/run-%d/stream", &run); err != nil {
			w.t.Error(err)
			return
		}
		for i, d := range w.turns[run-1] {
			raw, err := json.Marshal(event.Draft{Data: d}.Event(fmt.Sprintf("run-%d", run), "c", uint64(i), time.Unix(1, 0).UTC()))
			if err != nil {
				w.t.Error(err)
				return
			}
			_, _ = fmt.Fprintf(rw, "id: %d\ndata: %s\n\n", i, raw)
		}
	default:
		if _, err := fmt.Sscanf(path, "/api/v1/runs/run-%d", &run); err != nil {
			w.t.Errorf("%s %s: %v", r.Method, path, err)
			return
		}
		_, _ = fmt.Fprintf(rw, `{"run_id":"run-%d","lease_generation":%d}`, run, w.generations[run-1])
	}
}

// play plays the demo in a world.
func play(t *testing.T, w *world, out io.Writer) error {
	t.Helper()
	ts := httptest.NewServer(w)
	defer ts.Close()
	api, err := apiclient.New(ts.URL, func() (string, error) { return "token", nil })
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	sample := t.TempDir()
	if err := os.WriteFile(filepath.Join(sample, "f.txt"), []byte("\n  "+w.line+"\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), Config{
		API: api, Operator: api, Agent: "demo", Sample: sample, File: "f.txt", Out: out, People: io.Discard,
		KillWorker: KillProcess,
		RestartModelProxy: func(context.Context) error {
			if !w.gone() {
				t.Error("the model proxy went before the worker")
			}
			w.killed = true
			return nil
		},
	})
}

func TestADemoThatGoesWell(t *testing.T) {
	w := newWorld(t)
	var out strings.Builder
	if err := play(t, w, &out); err != nil {
		t.Fatal(err)
	}
	var how *process.ExitError
	if !errors.As(w.worker.Err(), &how) || how.Signal != syscall.SIGKILL || !w.killed {
		t.Errorf("the worker ended with %v, model proxy killed: %v", w.worker.Err(), w.killed)
	}
	lines := 0
	for in := bufio.NewScanner(strings.NewReader(out.String())); in.Scan(); lines++ {
		var l struct {
			Turn       int             `json:"turn"`
			BindingID  string          `json:"binding_id"`
			Epoch      *int            `json:"epoch"`
			Generation int             `json:"lease_generation"`
			Event      json.RawMessage `json:"event"`
		}
		dec := json.NewDecoder(strings.NewReader(in.Text()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
		var e event.Event
		if err := json.Unmarshal(l.Event, &e); err != nil {
			t.Errorf("%s: %v", l.Event, err)
		}
		if l.BindingID != "hs_1" || l.Epoch == nil || l.Generation != l.Turn || e.RunID != fmt.Sprintf("run-%d", l.Turn) {
			t.Errorf("%s", in.Text())
		}
	}
	if want := len(w.turns[0]) + len(w.turns[1]); lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
}

func TestADemoThatDoesNotIsAFailure(t *testing.T) {
	fail := event.RunError{Code: "model_failed", Message: "no", SideEffectStatus: event.SideEffectsNone}
	uncommitted := event.RunFinished{StopReason: "stop", ThreadState: event.Ephemeral()}
	for _, c := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"no tool", func(w *world) { w.turns[0] = join(said(w.line), []event.Data{committed()}) }, "turn 1: no tool"},
		{"another result", func(w *world) { w.turns[0] = join(called("else"), said(w.line), []event.Data{committed()}) }, "no result"},
		{"silence", func(w *world) { w.turns[0] = join(called(w.line), []event.Data{committed()}) }, "did not say"},
		{"an error", func(w *world) { w.turns[0] = join([]event.Data{fail}) }, "run.error: model_failed"},
		{"nothing durable", func(w *world) { w.turns[0] = join(called(w.line), said(w.line), []event.Data{uncommitted}) }, "not committed"},
		{"a jump", func(w *world) { w.noticed = 3 }, "from generation 1 to 3"},
		{"no memory", func(w *world) { w.turns[1] = join(said("I remember nothing."), []event.Data{committed()}) }, "does not remember"},
		{"cheating", func(w *world) { w.turns[1] = join(called(w.line), said(w.line), []event.Data{committed()}) }, "turn 2: it called a tool"},
		{"the old generation", func(w *world) { w.generations[1] = 1 }, "generation 1, want 2"},
		{"no worker of it", func(w *world) { w.generations[0] = 7 }, "no worker of generation 7"},
		{"no process", func(w *world) { w.pid = func() int { return 1 } }, "no process"},
		{"an end that is none", func(w *world) {
			w.turns[1] = join([]event.Data{event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone}})
		}, "ended in run.cancelled"},
	} {
		w := newWorld(t)
		c.change(w)
		if err := play(t, w, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestASampleFileWithoutTextIsNoDemo(t *testing.T) {
	for _, content := range []string{"", "\n \n"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if line, err := firstLine(path); err == nil {
			t.Errorf("%q", line)
		}
	}
}
