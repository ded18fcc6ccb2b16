package agents

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
	// runTimeout bounds one run, of agents that try again and again too.
	runTimeout = 3 * time.Minute
	// conditionTimeout bounds the wait for anything else.
	conditionTimeout = 60 * time.Second
	// toolRead is the one tool that the agents are offered.
	toolRead = "fs.read_text_file"
)

// talk is one conversation with an agent.
type talk struct {
	w                     *world
	agentID, conversation string
	what                  string // of the agent is tested, for the table of times
}

// talk begins a conversation of the user. suffix is that of the agent's id.
func (w *world) talk(t *testing.T, a agent, suffix string) *talk {
	test, _, _ := strings.Cut(t.Name(), "/")
	return &talk{w, a.name + suffix, "c-" + rand.Text(), strings.TrimPrefix(test, "Test")}
}

// turn is a run that has ended.
type turn struct {
	apiclient.Started

	conversation string
	events       []apiclient.Event
}

// begin starts a run and returns once it is committed.
func (c *talk) begin(t *testing.T, message string) apiclient.Started {
	t.Helper()
	s, err := c.w.user.Start(t.Context(), apiclient.Start{AgentID: c.agentID, ConversationID: c.conversation, Message: message})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return s
}

// say runs a turn to its end, whatever that is.
func (c *talk) say(t *testing.T, message string) turn {
	t.Helper()
	return c.end(t, c.begin(t, message))
}

// tell runs a turn that must finish, in the way that is usual.
func (c *talk) tell(t *testing.T, message string) turn {
	t.Helper()
	r := c.say(t, message)
	if reason := r.finished(t); reason != endTurn {
		t.Errorf("finished by %s: %s", reason, r)
	}
	return r
}

// end follows a run to its end and checks what holds of every log: one beginning,
// one end, and nothing missing.
func (c *talk) end(t *testing.T, s apiclient.Started) turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	events, err := c.w.user.Follow(ctx, s.RunID)
	r := turn{s, c.conversation, events}
	if err != nil {
		t.Fatalf("stream of %s: %v; so far: %s", s.RunID, err, r)
	}
	if len(events) == 0 || events[0].Type != "run.started" {
		t.Fatalf("a log that does not begin with run.started: %s", r)
	}
	for i, e := range events {
		if e.RunID != r.RunID || e.Sequence != uint64(i) || e.Terminal() != (i == len(events)-1) {
			t.Fatalf("event %d of %d: %s", i, len(events), e.Raw)
		}
	}
	if status, err := c.w.user.Run(t.Context(), s.RunID); err == nil {
		times.add(c.agentID, c.what, time.Since(status.StartedAt))
	}
	return r
}

// last is the terminal.
func (r turn) last() apiclient.Event { return r.events[len(r.events)-1] }

const endTurn = "end_turn"

// finished gives the stop reason of a run that must have finished with its thread
// state committed.
func (r turn) finished(t *testing.T) (stopReason string) {
	t.Helper()
	var end struct {
		StopReason  string `json:"stop_reason"`
		ThreadState struct {
			Durability string `json:"durability"`
		} `json:"thread_state"`
	}
	r.ended(t, "run.finished", &end)
	if end.ThreadState.Durability != "committed" {
		t.Fatalf("finished as %s", r.last().Raw)
	}
	return end.StopReason
}

// failure gives the code of a run that must have failed.
func (r turn) failure(t *testing.T) (code string) {
	t.Helper()
	var f struct {
		Code string `json:"code"`
	}
	r.ended(t, "run.error", &f)
	return f.Code
}

// ended reads the terminal, which must be of the type.
func (r turn) ended(t *testing.T, typ string, v any) {
	t.Helper()
	if r.last().Type != typ {
		t.Fatalf("did not end by %s: %s", typ, r)
	}
	data(t, r.last(), v)
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

// call is a tool call as the events of one run tell of it.
type call struct {
	ID     string          `json:"tool_call_id"`
	Tool   string          `json:"tool_name"`
	Args   json.RawMessage `json:"arguments"`
	Result json.RawMessage `json:"result"`
	Code   string          `json:"code"`
	// how it ended: tool.finished, tool.error, or "" where it is open.
	how string
}

// calls of a run, in the order in which they began or, where they had begun
// before, ended.
func (r turn) calls(t *testing.T) (calls []*call) {
	t.Helper()
	byID := map[string]*call{}
	for _, e := range r.events {
		if !strings.HasPrefix(e.Type, "tool.") || e.Type == "tool.arguments.delta" {
			continue
		}
		var now call
		data(t, e, &now)
		known := byID[now.ID]
		if known == nil {
			known = &now
			byID[now.ID] = known
			calls = append(calls, known)
		}
		if e.Type != "tool.started" {
			known.how, known.Result, known.Code = e.Type, now.Result, now.Code
		}
	}
	return calls
}

// String is the log in short, for people.
func (r turn) String() string {
	const most = 25 // at either end
	var b strings.Builder
	for i, e := range r.events {
		if i == most && len(r.events) > 2*most {
			b.WriteString("\n  ...")
		}
		if i < most || i >= len(r.events)-most {
			fmt.Fprintf(&b, "\n  %d %s %.300s", e.Sequence, e.Type, e.Data)
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

// sees waits until the run's log has an event that is looked for.
func (c *talk) sees(t *testing.T, runID, what string, is func(e apiclient.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	s, err := c.w.user.Stream(ctx, runID, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // nothing is left to read
	for {
		e, err := s.NextEvent()
		if err != nil {
			t.Fatalf("waiting for %s: %v; so far: %s", what, err, turn{events: c.log(t, runID)})
		}
		if is(e) {
			return
		}
		if e.Terminal() {
			t.Fatalf("waiting for %s: the run ended: %s", what, e.Raw)
		}
	}
}

// meanwhile waits for a condition while a run is under way, and fails once it has
// ended.
func (c *talk) meanwhile(t *testing.T, run apiclient.Started, what string, holds func() (bool, error)) {
	t.Helper()
	until(t, what, func(ctx context.Context) (bool, error) {
		ok, err := holds()
		if status, e := c.w.user.Run(ctx, run.RunID); !ok && e == nil && status.State == "ended" {
			t.Fatalf("waiting for %s: the run ended: %s", what, turn{run, c.conversation, c.log(t, run.RunID)}) //nolint:contextcheck // of the test
		}
		return ok, err
	})
}

// log is what was committed of a run so far.
func (c *talk) log(t *testing.T, runID string) []apiclient.Event {
	t.Helper()
	events, _, err := c.w.user.Log(t.Context(), runID, 500)
	if err != nil {
		t.Fatal(err)
	}
	return events
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

// kill ends the sandbox of a binding with SIGKILL, and waits until the control
// plane has given it up.
func (c *talk) kill(t *testing.T, bindingID string) {
	t.Helper()
	before, p := c.binding(t, bindingID), c.worker(t, bindingID)
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", p, err)
	}
	until(t, "end of the lease", func(ctx context.Context) (bool, error) {
		b, err := c.w.operator.Binding(ctx, bindingID)
		return err == nil && b.Generation > before.Generation && b.Ending == 0, err
	})
}

// sample writes a file with a line that nobody can guess into the folder of the
// sample server.
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
