package native

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// delegating has a subagent that reads, and one that has it read.
func delegating(c *harness.Construction) {
	approvals(c)
	c.Limits.ModelCalls, c.Limits.ToolCalls = 40, 40
	options(`{"model_retries":0,"subagents":[
		{"name":"reader","description":"Reads.","prompt":"you read","tools":["fs.read_file","fs.list"]},
		{"name":"boss","description":"Has read.","prompt":"you delegate","tools":["cofferdam.subagent_reader"]}]}`)(c)
}

// byPrompt plays a script for each agent: whoever asks first is answered first.
type byPrompt struct {
	w       wire
	mu      sync.Mutex
	scripts map[string][]answers
}

func (s *stand) perAgent(w wire) *byPrompt {
	b := &byPrompt{w: w, scripts: map[string][]answers{}}
	for range 64 {
		s.model.play(b.answer)
	}
	return b
}

func (b *byPrompt) play(prompt string, replies ...reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range replies {
		b.scripts[prompt] = append(b.scripts[prompt], b.w.says(r))
	}
}

func (b *byPrompt) answer(w http.ResponseWriter, r *http.Request) {
	raw, _ := r.Context().Value(bodyKey{}).([]byte)
	in, err := b.w.read(raw)
	b.mu.Lock()
	next := status(http.StatusTeapot, `{"error":{"message":"the script is over"}}`)
	if script := b.scripts[in.system]; err == nil && len(script) > 0 {
		next, b.scripts[in.system] = script[0], script[1:]
	}
	b.mu.Unlock()
	next(w, r)
}

func task(name, text string) called {
	return called{"subagent_" + name, fmt.Sprintf(`{"task":%q}`, text)}
}

func (e events) paths() string {
	var out []string
	for _, e := range e {
		out = append(out, fmt.Sprintf("%s@%d", e.Type(), len(e.Namespace)))
	}
	return strings.Join(out, " ")
}

// A subagent runs in the same run under a namespace of its own, with its own
// prompt and a part of the tools; its last words are the result.
func TestSubagent(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		s := newStand(t, on(w, delegating, func(c *harness.Construction) { c.Tools[0].ApprovalRequired = false })...)
		play := s.perAgent(w)
		play.play("be brief", reply{calls: []called{task("reader", "read a")}, stop: "tool_calls", input: 10, output: 1}, reply{text: "It says x.", stop: "stop", input: 10, output: 1})
		play.play("you read", reply{calls: []called{{"fs_read_file", `{"path":"a"}`}}, stop: "tool_calls", input: 10, output: 1}, reply{text: "x", stop: "stop", input: 10, output: 1})
		got := s.run(t, "run-1", "what does a say?")
		got.wantFinished(t, "stop")
		want := "run.started@0 tool.started@0 namespace.entered@1 tool.started@1 tool.finished@1 usage.updated@0 text.started@1 text.delta@1 text.finished@1 " +
			"namespace.exited@1 tool.finished@0 usage.updated@0 text.started@0 text.delta@0 text.delta@0 text.finished@0 usage.updated@0 run.finished@0"
		if got.paths() != want {
			t.Errorf("events: %s", got.paths())
		}
		entered, exited := of[event.NamespaceEntered](got)[0], of[event.NamespaceExited](got)[0]
		started := of[event.ToolStarted](got)
		if entered.AgentID != "reader" || entered.ParentToolCallID != started[0].ToolCallID || exited.Outcome != event.NamespaceSuccess || started[0].ToolName != "cofferdam.subagent_reader" {
			t.Errorf("%+v, %+v, %+v", entered, exited, started)
		}
		if usages := of[event.UsageUpdated](got); *usages[len(usages)-1].InputTokens != 40 {
			t.Errorf("usage: %+v", usages)
		}
		reqs := s.model.asked()
		sub, err := w.read([]byte(reqs[1].raw))
		must(t, err)
		if sub.system != "you read" || strings.Join(sub.turns, "|") != "user read a" || strings.Join(sub.tools, " ") != "fs_read_file fs_list" {
			t.Errorf("the subagent is asked %+v", sub)
		}
		last := s.asked(t, w)
		if last.turns[len(last.turns)-1] != "result x" || !slices.Contains(last.tools, "subagent_reader") {
			t.Errorf("the model is asked %+v", last)
		}
	})
}

// Subagents run side by side, nested ones too, and every id is one of its own.
func TestSubagentsTogether(t *testing.T) {
	w := chatWire()
	s := newStand(t, on(w, delegating, func(c *harness.Construction) { c.Tools[0].ApprovalRequired = false })...)
	s.tools.answer = together(3) // ends only if the tools of all three are under way
	play := s.perAgent(w)
	play.play("be brief", reply{calls: []called{task("reader", "a"), task("boss", "b"), {"fs_list", `{}`}}, stop: "tool_calls"}, reply{text: "ok", stop: "stop"})
	play.play("you delegate", reply{calls: []called{task("reader", "c")}, stop: "tool_calls"}, reply{text: "from below", stop: "stop"})
	read := reply{calls: []called{{"fs_read_file", `{}`}}, stop: "tool_calls"}
	play.play("you read", read, read, reply{text: "x", stop: "stop"}, reply{text: "x", stop: "stop"})
	got := s.run(t, "run-1", "go")
	got.wantFinished(t, "stop")
	if n := len(of[event.NamespaceEntered](got)); n != 3 {
		t.Errorf("%d namespaces", n)
	}
	results := s.model.last(t)
	if a, b := results[len(results)-3].Content, results[len(results)-2].Content; a != "x" || b != "from below" {
		t.Errorf("results %q and %q", a, b)
	}
}

// A subagent whose model fails is an error of its call; what ends the run ends it
// from there as well.
func TestSubagentFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer answers
		code   fault.Code
		ends   bool
	}{
		"cut off in a text": {stream(content("Hel")), fault.ModelFailed, false},
		"throttled":         {status(429, `{}`), fault.RateLimited, false},
		"stale":             {status(409, `{"error":{"code":"stale_lease"}}`), fault.StaleLease, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, delegating)
			s.model.play(callsTool("subagent_reader", `{"task":"read"}`), c.answer, answer1("sorry"))
			got := s.run(t, "run-1", "go")
			if c.ends {
				got.wantError(t, c.code)
				return
			}
			got.wantFinished(t, "stop")
			e, x := of[event.ToolError](got), of[event.NamespaceExited](got)
			if len(e) != 1 || e[0].Code != string(c.code) || x[0].Outcome != event.NamespaceError {
				t.Errorf("%+v, %+v", e, x)
			}
		})
	}
}

// The run's limits are the subagents' too.
func TestSubagentLimits(t *testing.T) {
	s := newStand(t, delegating, func(c *harness.Construction) { c.Limits.ModelCalls = 2 })
	s.model.play(callsTool("subagent_reader", `{"task":"read"}`), callsTool("fs_list", `{}`), answer1("never"))
	got := s.run(t, "run-1", "go")
	got.wantFinished(t, stopModelCalls)
	if len(s.model.asked()) != 2 {
		t.Errorf("the model was asked %d times", len(s.model.asked()))
	}
	s = newStand(t, delegating)
	s.model.play(callsTool("subagent_reader", `{}`), callsTool("subagent_reader", `{"task":""}`), answer1("ok"))
	got = s.run(t, "run-1", "go")
	got.wantFinished(t, "stop")
	if n := len(of[event.ToolError](got)); n != 2 {
		t.Errorf("%d errors", n)
	}
}

// An approval in subagents is asked for in their namespace, and the answer leads
// back into their conversation, in a worker that has seen none of it.
func TestApprovalInASubagent(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		s := newStand(t, on(w, delegating)...)
		play := s.perAgent(w)
		play.play("be brief", reply{calls: []called{{"fs_list", `{"n":1}`}, task("boss", "read a")}, stop: "tool_calls"})
		play.play("you delegate", reply{text: "I have it read.", calls: []called{task("reader", "read a")}, stop: "tool_calls"})
		play.play("you read", reply{calls: []called{{"fs_list", `{"n":2}`}, {"fs_read_file", `{"path":"a"}`}}, stop: "tool_calls"})
		before := s.run(t, "run-1", "go")
		q := before.wantInterrupted(t)
		asked := before[slices.IndexFunc(before, func(e event.Event) bool { return e.Type() == event.TypeInterruptRequested })]
		if q.AgentID != "reader" || len(asked.Namespace) != 2 || len(q.ToolApprovals) != 1 {
			t.Errorf("asked %+v in %v", q, asked.Namespace)
		}
		if !strings.HasSuffix(before.paths(), "interrupt.requested@2 namespace.exited@2 namespace.exited@1 run.interrupted@0") {
			t.Errorf("events: %s", before.paths())
		}

		other := s.fresh(t, on(w, delegating)...)
		play = other.perAgent(w)
		play.play("you read", reply{text: "a says x", stop: "stop"})
		play.play("you delegate", reply{text: "x, I am told", stop: "stop"})
		play.play("be brief", reply{text: "It is x.", stop: "stop"})
		after := other.decide(t, "run-2", before, each(q, event.DecisionApprove))
		after.wantFinished(t, "stop")
		if !strings.HasPrefix(after.paths(), "run.started@0 namespace.entered@1 namespace.entered@2 tool.finished@2 text.started@2") {
			t.Errorf("events: %s", after.paths())
		}
		// What the root calls and what its subagents call go out side by side; the
		// approved call can only be the last.
		calls := strings.Fields(s.tools.names())
		slices.Sort(calls[:max(len(calls)-1, 0)])
		if got := strings.Join(calls, " "); got != `fs.list{"n":1} fs.list{"n":2} fs.read_file{"path":"a"}` {
			t.Errorf("calls: %s", got)
		}
		reqs := other.model.asked()
		sub, err := w.read([]byte(reqs[0].raw))
		must(t, err)
		if got := strings.Join(sub.turns, "|"); got != `user read a|call fs_list {"n":2}|call fs_read_file {"path":"a"}|result done|result done` {
			t.Errorf("the subagent is sent %s", got)
		}
		turns := other.asked(t, w).turns
		if turns[len(turns)-1] != "result x, I am told" {
			t.Errorf("the model is sent %q", turns)
		}
	})
}

// Questions of several agents are one interrupt, of the root.
func TestApprovalsOfSeveralAgents(t *testing.T) {
	w := chatWire()
	s := newStand(t, on(w, delegating)...)
	play := s.perAgent(w)
	read := func(n int) called { return called{"fs_read_file", fmt.Sprintf(`{"n":%d}`, n)} }
	play.play("be brief", reply{calls: []called{read(1), task("reader", "a"), task("reader", "b")}, stop: "tool_calls"})
	play.play("you read", reply{calls: []called{read(2)}, stop: "tool_calls"}, reply{calls: []called{read(3)}, stop: "tool_calls"})
	before := s.run(t, "run-1", "go")
	q := before.wantInterrupted(t)
	if q.AgentID != "agent" || len(q.ToolApprovals) != 3 {
		t.Fatalf("asked: %+v", q)
	}
	d := each(q, event.DecisionApprove)
	d.Tools[1].Decision = event.DecisionReject

	// One of them asks once more.
	other := s.fresh(t, on(w, delegating)...)
	play = other.perAgent(w)
	play.play("you read", reply{text: "first", stop: "stop"}, reply{calls: []called{read(4)}, stop: "tool_calls"})
	again := other.decide(t, "run-2", before, d)
	q = again.wantInterrupted(t)
	if len(q.ToolApprovals) != 1 || q.AgentID != "reader" {
		t.Fatalf("asked: %+v", q)
	}
	third := s.fresh(t, on(w, delegating)...)
	play = third.perAgent(w)
	play.play("you read", reply{text: "second", stop: "stop"})
	play.play("be brief", reply{text: "ok", stop: "stop"})
	third.decide(t, "run-3", again, each(q, event.DecisionApprove)).wantFinished(t, "stop")
	if n := len(s.tools.called()); n != 3 { // one of four was rejected
		t.Errorf("calls: %s", s.tools.names())
	}
	last := third.model.last(t)
	results := []string{last[len(last)-2].Content, last[len(last)-1].Content}
	slices.Sort(results)
	if !slices.Equal(results, []string{"first", "second"}) || last[len(last)-3].Content != "done" {
		t.Errorf("the model reads %+v", last)
	}
}

// A subagent that the agent has lost since is given up with all that waited in
// it.
func TestSubagentIsGone(t *testing.T) {
	w := chatWire()
	s := newStand(t, on(w, delegating)...)
	play := s.perAgent(w)
	play.play("be brief", reply{calls: []called{task("boss", "a")}, stop: "tool_calls"})
	play.play("you delegate", reply{calls: []called{task("reader", "a")}, stop: "tool_calls"})
	play.play("you read", reply{calls: []called{{"fs_read_file", `{}`}}, stop: "tool_calls"})
	before := s.run(t, "run-1", "go")
	other := s.fresh(t, on(w, delegating, options(`{"model_retries":0}`))...)
	other.model.play(answer1("ok"))
	after := other.decide(t, "run-2", before, each(before.wantInterrupted(t), event.DecisionApprove))
	after.wantFinished(t, "stop")
	if n := len(of[event.ToolError](after)); n != 3 || len(s.tools.called()) != 0 {
		t.Errorf("%d errors: %s", n, after.types())
	}
}

// What no run can have open is refused, and nothing waits for ever.
func TestTooManySubagents(t *testing.T) {
	w := chatWire()
	s := newStand(t, on(w, delegating)...)
	play := s.perAgent(w)
	r := reply{stop: "tool_calls"}
	for range maxSpaces + 2 {
		r.calls = append(r.calls, task("reader", "a"))
		play.play("you read", reply{calls: []called{{"fs_read_file", `{}`}}, stop: "tool_calls"})
	}
	play.play("be brief", r)
	got := s.run(t, "run-1", "go")
	got.wantInterrupted(t)
	if n := len(of[event.ToolError](got)); n != 2 {
		t.Errorf("%d were refused", n)
	}
}

// A cancel ends subagents with all that they do.
func TestCancelInASubagent(t *testing.T) {
	s := newStand(t, delegating)
	begun := make(chan struct{})
	s.tools.answer = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
		close(begun)
		<-ctx.Done()
		return harness.ToolResult{}, fault.From(ctx.Err(), "test")
	}
	s.model.play(callsTool("subagent_reader", `{"task":"read"}`), callsTool("fs_list", `{}`))
	r := s.start(t, "run-1", "go")
	<-begun
	r.cancel()
	if got := r.read(); got.end().Type() != event.TypeRunCancelled || s.thread.head.Revision != 0 {
		t.Errorf("events: %s", got.types())
	}
}
