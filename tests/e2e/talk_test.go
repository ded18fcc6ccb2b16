package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const (
	// runTimeout bounds one run that nothing gets in the way of.
	runTimeout = 2 * time.Minute
	// conditionTimeout bounds the wait for anything else.
	conditionTimeout = time.Minute
	pageSize         = 7 // small, so that every log has several pages
)

// talk is one conversation with the demo agent.
type talk struct {
	w            *world
	client       *apiclient.Client
	conversation string
}

// talk begins a conversation of the user.
func (w *world) talk() *talk {
	w.talks.Add(1)
	return &talk{w, w.user, "c-" + rand.Text()}
}

// turn is a run that has ended.
type turn struct {
	apiclient.Started
	events []apiclient.Event
}

// begin starts a run and returns once it is committed.
func (c *talk) begin(t *testing.T, message string, files ...apiclient.File) apiclient.Started {
	t.Helper()
	s, err := c.client.Start(t.Context(), apiclient.Start{
		AgentID: stack.Agent, ConversationID: c.conversation, Message: message, Files: files,
	})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if s.RunID == "" || s.BindingID == "" {
		t.Fatalf("started as %+v", s)
	}
	return s
}

// say runs a turn to its end, whatever that is.
func (c *talk) say(t *testing.T, message string, files ...apiclient.File) turn {
	t.Helper()
	return c.end(t, c.begin(t, message, files...))
}

// tell runs a turn that must finish.
func (c *talk) tell(t *testing.T, message string, files ...apiclient.File) turn {
	t.Helper()
	r := c.say(t, message, files...)
	r.finished(t)
	return r
}

// end follows a run to its end and checks what holds of every run.
func (c *talk) end(t *testing.T, s apiclient.Started) turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	events, err := c.client.Follow(ctx, s.RunID)
	if err != nil {
		t.Fatalf("stream of %s after %d events: %v", s.RunID, len(events), err)
	}
	r := turn{s, events}
	r.whole(t, c)
	return r
}

// whole checks what every log is: one beginning, one end, and nothing missing.
func (r turn) whole(t *testing.T, c *talk) {
	t.Helper()
	if len(r.events) == 0 || r.events[0].Type != "run.started" {
		t.Fatalf("a log that does not begin with run.started: %s", r)
	}
	for i, e := range r.events {
		if e.RunID != r.RunID || e.ConversationID != c.conversation {
			t.Errorf("event %d is of run %s and conversation %s", i, e.RunID, e.ConversationID)
		}
		if e.Sequence != uint64(i) {
			t.Errorf("event %d has the sequence %d", i, e.Sequence)
		}
		if last := i == len(r.events)-1; e.Terminal() != last {
			t.Errorf("event %d of %d is %s", i, len(r.events), e.Type)
		}
	}
}

// last is the terminal.
func (r turn) last() apiclient.Event { return r.events[len(r.events)-1] }

// finished is the payload of run.finished; the run must have ended with it, and
// its thread state must be committed.
func (r turn) finished(t *testing.T) (revision uint64) {
	t.Helper()
	var end struct {
		Outcome     string `json:"outcome"`
		ThreadState struct {
			Durability string `json:"durability"`
			Revision   uint64 `json:"durable_revision"`
			HeadRef    string `json:"head_ref"`
		} `json:"thread_state"`
	}
	if r.last().Type != "run.finished" {
		t.Fatalf("did not finish: %s", r)
	}
	data(t, r.last(), &end)
	if end.Outcome != "success" || end.ThreadState.Durability != "committed" || end.ThreadState.HeadRef == "" {
		t.Fatalf("finished as %s", r.last().Raw)
	}
	return end.ThreadState.Revision
}

// failed is the payload of run.error.
type failed struct {
	Code        string `json:"code"`
	Message     string `json:"message"`
	SideEffects string `json:"side_effect_status"`
}

// failure gives how a run failed; it must have.
func (r turn) failure(t *testing.T) (f failed) {
	t.Helper()
	if r.last().Type != "run.error" {
		t.Fatalf("did not fail: %s", r)
	}
	data(t, r.last(), &f)
	return f
}

// text is what the agent said.
func (r turn) text(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, e := range r.of("text.delta") {
		var d struct {
			Delta string `json:"delta"`
		}
		data(t, e, &d)
		b.WriteString(d.Delta)
	}
	return b.String()
}

// of gives the events of a type.
func (r turn) of(typ string) []apiclient.Event {
	var found []apiclient.Event
	for _, e := range r.events {
		if e.Type == typ {
			found = append(found, e)
		}
	}
	return found
}

// String is the log in short, for people.
func (r turn) String() string {
	const most = 20 // at either end
	var b strings.Builder
	for i, e := range r.events {
		if i == most && len(r.events) > 2*most {
			b.WriteString("\n  ...")
		}
		if i < most || i >= len(r.events)-most {
			fmt.Fprintf(&b, "\n  %d %s %.200s", e.Sequence, e.Type, e.Data)
		}
	}
	return b.String()
}

func data(t *testing.T, e apiclient.Event, v any) {
	t.Helper()
	if err := json.Unmarshal(e.Data, v); err != nil {
		t.Fatalf("%s: %v", e.Raw, err)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, holds func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	if err := stack.Until(ctx, func() (bool, error) { return holds(ctx) }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// binding is what an operator sees of the conversation.
func (c *talk) binding(t *testing.T, id string) apiclient.Binding {
	t.Helper()
	b, err := c.w.operator.Binding(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// worker gives the process of a binding's sandbox.
func (c *talk) worker(t *testing.T, bindingID string) procs.Process {
	t.Helper()
	b := c.binding(t, bindingID)
	if b.Sandbox == nil || b.Sandbox.PID == 0 {
		t.Fatalf("binding without a sandbox: %+v", b)
	}
	p, err := procs.Read(b.Sandbox.PID)
	if err != nil {
		t.Fatal(err)
	}
	if p.Program() != "worker" {
		t.Fatalf("the sandbox is %s", p)
	}
	return p
}

// sees waits until the run's log has an event of the type.
func (c *talk) sees(t *testing.T, runID, typ string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	if err := c.client.Sees(ctx, runID, typ); err != nil {
		t.Fatal(err)
	}
}

// sample writes a file with a line that nobody can guess into the sample folder.
func (w *world) sample(t *testing.T) (name, line string) {
	t.Helper()
	name, line = "note-"+rand.Text()+".txt", "the secret of the day is "+rand.Text()
	path := filepath.Join(w.Data, "sample", name)
	if err := os.WriteFile(path, []byte("first line\n"+line+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	return name, line
}

func read(name string) string { return `>>call fs.read_text_file {"path":"` + name + `"}` }

// kill ends a process with SIGKILL and waits until it is gone.
func kill(t *testing.T, p procs.Process) {
	t.Helper()
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", p, err)
	}
	until(t, "end of "+p.String(), func(context.Context) (bool, error) { return !p.Alive(), nil })
}

// killProgram kills the one process of the stack that runs a program, and gives
// a function that waits until another one does.
func (w *world) killProgram(t *testing.T, name string) (back func()) {
	t.Helper()
	before, err := w.Program(name)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, before)
	return func() {
		t.Helper()
		until(t, "another "+name, func(context.Context) (bool, error) {
			now, err := w.Program(name)
			return err == nil && now.PID != before.PID, err
		})
	}
}

// workerOf waits until a run has a worker and gives its process.
func (c *talk) workerOf(t *testing.T, run apiclient.Started) procs.Process {
	t.Helper()
	c.sees(t, run.RunID, "run.started")
	return c.worker(t, run.BindingID)
}

// ended waits until a run whose terminal was seen is concluded, and gives its
// status, which must say the same as the log.
func (c *talk) ended(t *testing.T, r turn) (status apiclient.Run) {
	t.Helper()
	until(t, "conclusion of "+r.RunID, func(ctx context.Context) (_ bool, err error) {
		status, err = c.client.Run(ctx, r.RunID)
		return err == nil && status.State == "ended", err
	})
	if status.Terminal == nil || string(status.Terminal.Raw) != string(r.last().Raw) || status.Events != uint64(len(r.events)) {
		t.Errorf("status %+v of a run with %d events that ended with %s", status, len(r.events), r.last().Raw)
	}
	return status
}
