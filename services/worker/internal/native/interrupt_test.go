package native

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// approvals lets people be asked, and asks for fs.read_file.
func approvals(c *harness.Construction) {
	c.Interrupts = harness.InterruptPolicy{ToolApproval: true, FormInput: true}
	c.Tools[0].ApprovalRequired = true
}

// fresh is a stand that has never seen the runs of another: it shares what is
// outside of a worker.
func (s *stand) fresh(t *testing.T, change ...func(*harness.Construction)) *stand {
	t.Helper()
	other := newStand(t, change...)
	other.thread, other.tools, other.files, other.memory = s.thread, s.tools, s.files, s.memory
	return other
}

var threeCalls = reply{text: "I look.", stop: "tool_calls", calls: []called{
	{"fs_read_file", `{"path":"a"}`}, {"fs_list", `{}`}, {"fs_read_file", `{"path":"b"}`},
}}

// Calls that need none are made and finished before people are asked about the
// others, all in one question; the run that was interrupted is never needed again.
func TestApproval(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		for name, c := range map[string]struct {
			decision event.ResumeDecision
			edit     bool
			calls    string
			events   string
			reads    []string
		}{
			"approve": {
				calls: `fs.list{} fs.read_file{"path":"a"} fs.read_file{"path":"b"}`, events: "tool.finished tool.finished",
				reads: []string{"done", "done", "done"},
			},
			"reject": {
				decision: event.ResumeDecision{Tools: []event.ToolDecision{{Decision: event.DecisionReject}, {Decision: event.DecisionReject}}},
				calls:    `fs.list{}`, events: "tool.error tool.error", reads: []string{"did not allow", "done", "did not allow"},
			},
			"dismiss": {
				decision: event.ResumeDecision{Dismiss: true}, calls: `fs.list{}`, events: "tool.error tool.error",
				reads: []string{"did not allow", "done", "did not allow"},
			},
			"each in its own way": {
				decision: event.ResumeDecision{Tools: []event.ToolDecision{{Decision: event.DecisionReject}, {Decision: event.DecisionEdit, Arguments: `{"path":"c"}`}}},
				calls:    `fs.list{} fs.read_file{"path":"c"}`, events: "tool.error tool.finished",
				reads: []string{"tool_denied", "done", `[A person changed the arguments before the call was made, to {"path":"c"}]` + "\ndone"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				s := newStand(t, on(w, approvals, options(`{"parallel_tool_calls":1,"model_retries":0}`))...)
				s.model.play(w.says(threeCalls))
				before := s.run(t, "run-1", "look")
				want := "run.started text.started text.delta text.delta text.finished tool.started tool.started tool.finished tool.started interrupt.requested run.interrupted"
				if before.types() != want {
					t.Errorf("events: %s", before.types())
				}
				q := before.wantInterrupted(t)
				started := of[event.ToolStarted](before)
				if len(q.ToolApprovals) != 2 || q.AgentID != "agent" || q.ToolApprovals[0].ToolCallID != started[0].ToolCallID ||
					q.ToolApprovals[1].ToolArgs != `{"path":"b"}` || q.ToolApprovals[0].ToolName != "fs.read_file" || len(q.ToolApprovals[0].AllowedDecisions) != 3 {
					t.Errorf("asked: %+v", q)
				}
				if n := len(s.tools.called()); n != 1 {
					t.Errorf("%d calls before the decision", n)
				}

				d := c.decision
				if !d.Dismiss && d.Tools == nil {
					d = each(q, event.DecisionApprove)
				}
				for i := range d.Tools {
					d.Tools[i].ToolCallID = q.ToolApprovals[i].ToolCallID
				}
				other := s.fresh(t, on(w, approvals, options(`{"parallel_tool_calls":1,"model_retries":0}`))...)
				other.model.play(w.says(reply{text: "So it is.", stop: "stop"}))
				after := other.decide(t, "run-2", before, d)
				after.wantFinished(t, "stop")
				if want := "run.started " + c.events + " text.started text.delta text.delta text.finished run.finished"; after.types() != want {
					t.Errorf("events: %s", after.types())
				}
				for _, e := range of[event.ToolError](after) {
					if e.Code != string(fault.ToolDenied) {
						t.Errorf("tool.error: %+v", e)
					}
				}
				if got := s.tools.names(); got != c.calls {
					t.Errorf("calls: %s", got)
				}
				turns := other.asked(t, w).turns
				results := turns[len(turns)-3:]
				for i, want := range c.reads {
					if !strings.Contains(results[i], want) {
						t.Errorf("the model reads %q, want %q", results[i], want)
					}
				}
				if s.thread.head.Revision != 2 {
					t.Errorf("revision %d", s.thread.head.Revision)
				}
			})
		}
	})
}

func (b *tools) names() string {
	var out []string
	for _, c := range b.called() {
		out = append(out, c.ToolID+string(c.Arguments))
	}
	return strings.Join(out, " ")
}

// The broker's own word for it asks as well, and once only.
func TestApprovalThatTheBrokerWants(t *testing.T) {
	s := newStand(t, func(c *harness.Construction) { c.Interrupts.ToolApproval = true })
	refuse := func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{}, fault.New(fault.ApprovalRequired, "test")
	}
	s.tools.answer = refuse
	s.model.play(callsTool("fs_list", `{}`))
	before := s.run(t, "run-1", "look")
	before.wantInterrupted(t)
	s.model.play(answer1("sorry"))
	after := s.decide(t, "run-2", before, each(before.wantInterrupted(t), event.DecisionApprove))
	after.wantFinished(t, "stop")
	if e := of[event.ToolError](after); len(e) != 1 || e[0].Code != string(fault.ApprovalRequired) {
		t.Errorf("errors: %+v", e)
	}
}

// Where nobody can be asked, a call that needs it is denied, and the model knows.
func TestApprovalWithoutAnybody(t *testing.T) {
	s := newStand(t, func(c *harness.Construction) { c.Tools[0].ApprovalRequired = true })
	s.model.play(callsTool("fs_read_file", `{}`), answer1("ok"))
	got := s.run(t, "run-1", "look")
	got.wantFinished(t, "stop")
	if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(fault.ToolDenied) || len(s.tools.called()) != 0 {
		t.Errorf("errors: %+v, calls: %s", e, s.tools.names())
	}
	if last := s.model.last(t); !strings.Contains(last[len(last)-1].Content, "nobody can be asked") {
		t.Errorf("the model reads %q", last[len(last)-1].Content)
	}
}

// Arguments that are no object are the model's mistake, not a person's question.
func TestApprovalOfBadArguments(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(callsTool("fs_read_file", `{"a":1,"a":2}`), answer1("ok"))
	s.run(t, "run-1", "look").wantFinished(t, "stop")
}

// More than one question can hold is refused before anything is asked.
func TestApprovalsAreBounded(t *testing.T) {
	t.Run("in number", func(t *testing.T) {
		s := newStand(t, approvals, func(c *harness.Construction) { c.Limits.ToolCalls = 100 })
		var r reply
		for range maxAsked + 3 {
			r.calls = append(r.calls, called{"fs_read_file", "{}"})
		}
		r.stop = "tool_calls"
		s.model.play(chatWire().says(r))
		got := s.run(t, "run-1", "look")
		if n := len(got.wantInterrupted(t).ToolApprovals); n != maxAsked || len(of[event.ToolError](got)) != 3 {
			t.Errorf("%d were asked about, %d refused", n, len(of[event.ToolError](got)))
		}
	})
	t.Run("in bytes", func(t *testing.T) {
		s := newStand(t, approvals)
		large := `{"x":"` + strings.Repeat("x", 150<<10) + `"}`
		s.model.play(chatWire().says(reply{calls: []called{{"fs_read_file", large}, {"fs_read_file", large}}, stop: "tool_calls"}))
		got := s.run(t, "run-1", "look")
		if n := len(got.wantInterrupted(t).ToolApprovals); n != 1 || len(of[event.ToolError](got)) != 1 {
			t.Errorf("%d were asked about", n)
		}
	})
}

// A second question comes in the run that answered the first one.
func TestApprovalAfterApproval(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(callsTool("fs_read_file", `{"n":1}`))
	first := s.run(t, "run-1", "look")
	s.model.play(callsTool("fs_read_file", `{"n":2}`))
	second := s.decide(t, "run-2", first, each(first.wantInterrupted(t), event.DecisionApprove))
	if a, b := first.wantInterrupted(t), second.wantInterrupted(t); a.InterruptID == b.InterruptID || a.ToolApprovals[0].ToolCallID == b.ToolApprovals[0].ToolCallID {
		t.Errorf("asked %+v and %+v", a, b)
	}
	s.model.play(answer1("ok"))
	s.decide(t, "run-3", second, each(second.wantInterrupted(t), event.DecisionApprove)).wantFinished(t, "stop")
	if got := s.tools.names(); got != `fs.read_file{"n":1} fs.read_file{"n":2}` {
		t.Errorf("calls: %s", got)
	}
}

// An answer to another question than the state waits for changes nothing.
func TestResumeOfAnotherInterrupt(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(callsTool("fs_read_file", `{}`))
	before := s.run(t, "run-1", "look")
	q := before.wantInterrupted(t)
	for name, id := range map[string]string{"another id": "int-x", "none": ""} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, "run-2", 1<<40, event.Carried{ToolCallID: q.ToolApprovals[0].ToolCallID, Decision: event.DecisionApprove})
			r.begin(t, func(ctx context.Context) (harness.Result, error) {
				d := harness.Decision{
					RunID: "run-2", Interrupt: event.InterruptRequested{InterruptID: id},
					Tools: []harness.ToolDecision{{ToolCallID: q.ToolApprovals[0].ToolCallID, Decision: event.DecisionApprove}},
				}
				return s.runtime.Resume(ctx, d, s.facades(r), r)
			}).read().wantError(t, fault.InterruptConflict)
		})
	}
	if len(s.tools.called()) != 0 || s.thread.head.Revision != 1 {
		t.Error("something was done")
	}
	// Without a decision on its call nothing is called either.
	r := newRun(t, "run-3", 1<<40, event.Carried{ToolCallID: q.ToolApprovals[0].ToolCallID, Decision: event.DecisionApprove})
	r.begin(t, func(ctx context.Context) (harness.Result, error) {
		return s.runtime.Resume(ctx, harness.Decision{RunID: "run-3", Interrupt: event.InterruptRequested{InterruptID: q.InterruptID}}, s.facades(r), r)
	}).read().wantError(t, fault.InterruptConflict)
	if len(s.tools.called()) != 0 {
		t.Error("the tool was called")
	}
}

// A person who says something else instead of answering gives the calls up.
func TestTurnInsteadOfAnAnswer(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(chatWire().says(threeCalls))
	s.run(t, "run-1", "look").wantInterrupted(t)
	s.model.play(answer1("ok"))
	got := s.run(t, "run-2", "never mind")
	got.wantFinished(t, "stop")
	if len(of[event.ToolFinished](got))+len(of[event.ToolError](got)) != 0 || s.tools.names() != "fs.list{}" {
		t.Errorf("events: %s, calls: %s", got.types(), s.tools.names())
	}
	var results []string
	for _, m := range s.model.last(t) {
		if m.Role == "tool" {
			results = append(results, m.Content)
		}
	}
	if !slices.Equal(results, []string{notAnswered, "done", notAnswered}) {
		t.Errorf("the model reads %q", results)
	}
}

// The state that an interrupt needs is committed with it, or the run fails.
func TestInterruptIsNotCommitted(t *testing.T) {
	for _, code := range []fault.Code{fault.RevisionConflict, fault.ThreadDurabilityUncertain, fault.StaleLease} {
		s := newStand(t, approvals)
		s.thread.commitErr = fault.New(code, "test")
		s.model.play(callsTool("fs_read_file", `{}`))
		s.run(t, "run-1", "look").wantError(t, code)
	}
}

// An approved call that the tool fails tells so, whatever was approved.
func TestApprovedCallFails(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(callsTool("fs_read_file", `{}`))
	before := s.run(t, "run-1", "look")
	s.tools.answer = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{}, fault.Wrap(errors.New("secret"), fault.ToolOutcomeUnknown, "test")
	}
	s.model.play(answer1("ok"))
	after := s.decide(t, "run-2", before, each(before.wantInterrupted(t), event.DecisionApprove))
	after.wantFinished(t, "stop")
	if e := of[event.ToolError](after); len(e) != 1 || e[0].Code != string(fault.ToolOutcomeUnknown) {
		t.Errorf("errors: %+v", e)
	}
}

// An agent that has lost a tool since cannot have it called by an old question.
func TestApprovedToolIsGone(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(callsTool("fs_read_file", `{}`))
	before := s.run(t, "run-1", "look")
	other := s.fresh(t, approvals, func(c *harness.Construction) { c.Tools = c.Tools[1:] })
	other.model.play(answer1("ok"))
	after := other.decide(t, "run-2", before, each(before.wantInterrupted(t), event.DecisionApprove))
	after.wantFinished(t, "stop")
	if len(s.tools.called()) != 0 || len(of[event.ToolError](after)) != 1 {
		t.Errorf("calls: %s, events: %s", s.tools.names(), after.types())
	}
}

const someForm = `{"prompt":"Which colour?","fields":[{"name":"colour","type":"select","values":["red","blue"],"required":true},{"name":"note","type":"text"}]}`

func TestForm(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		for name, c := range map[string]struct {
			decision event.ResumeDecision
			reads    string
		}{
			"answered":  {event.ResumeDecision{Form: `{"colour":"red"}`}, `result {"colour":"red"}`},
			"dismissed": {event.ResumeDecision{Dismiss: true}, "result The person dismissed the form without an answer."},
		} {
			t.Run(name, func(t *testing.T) {
				s := newStand(t, on(w, approvals)...)
				s.model.play(w.says(reply{calls: []called{{"fs_list", "{}"}, {"ask_user", someForm}}, stop: "tool_calls"}))
				before := s.run(t, "run-1", "paint it")
				if want := "run.started tool.started tool.finished interrupt.requested run.interrupted"; before.types() != want {
					t.Errorf("events: %s", before.types())
				}
				q := before.wantInterrupted(t)
				if q.InterruptType != event.InterruptFormInput || q.Prompt != "Which colour?" || len(q.Fields) != 2 || !q.Fields[0].Required || q.Fields[0].FieldValues[1] != "blue" {
					t.Errorf("asked: %+v", q)
				}
				other := s.fresh(t, on(w, approvals)...)
				other.model.play(w.says(reply{text: "ok", stop: "stop"}))
				after := other.decide(t, "run-2", before, c.decision)
				after.wantFinished(t, "stop")
				if want := "run.started tool.started tool.finished text.started text.delta text.delta text.finished run.finished"; after.types() != want {
					t.Errorf("events: %s", after.types())
				}
				if started := of[event.ToolStarted](after)[0]; started.ToolName != "cofferdam.ask_user" {
					t.Errorf("tool.started: %+v", started)
				}
				turns := other.asked(t, w).turns
				if turns[len(turns)-1] != c.reads || turns[len(turns)-2] != "result done" {
					t.Errorf("the model reads %q", turns)
				}
			})
		}
	})
}

// Of an approval and a form in one answer the approval is asked for first; the
// form follows in the run that carries the decision out.
func TestApprovalBeforeForm(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(chatWire().says(reply{calls: []called{{"fs_read_file", `{"path":"a"}`}, {"ask_user", someForm}}, stop: "tool_calls"}))
	first := s.run(t, "run-1", "go")
	if q := first.wantInterrupted(t); q.InterruptType != event.InterruptToolApproval || len(q.ToolApprovals) != 1 {
		t.Errorf("asked first: %+v", q)
	}
	other := s.fresh(t, approvals)
	second := other.decide(t, "run-2", first, each(first.wantInterrupted(t), event.DecisionApprove))
	if q := second.wantInterrupted(t); q.InterruptType != event.InterruptFormInput {
		t.Errorf("asked then: %+v", q)
	}
	third := s.fresh(t, approvals)
	third.model.play(answer1("ok"))
	third.decide(t, "run-3", second, event.ResumeDecision{Form: `{"colour":"blue","note":"dark"}`}).wantFinished(t, "stop")
	last := third.model.last(t)
	if last[len(last)-1].Content != `{"colour":"blue","note":"dark"}` || last[len(last)-2].Content != "done" || s.tools.names() != `fs.read_file{"path":"a"}` {
		t.Errorf("the model reads %+v", last)
	}
}

// A form that is not the last call of its answer, or that nobody could fill in, is
// the model's mistake.
func TestFormRefused(t *testing.T) {
	for name, calls := range map[string][]called{
		"not the last":      {{"ask_user", someForm}, {"fs_list", "{}"}},
		"no prompt":         {{"ask_user", `{"fields":[]}`}},
		"an empty prompt":   {{"ask_user", `{"prompt":""}`}},
		"a field twice":     {{"ask_user", `{"prompt":"x","fields":[{"name":"a","type":"text"},{"name":"A","type":"text"}]}`}},
		"a type that is no": {{"ask_user", `{"prompt":"x","fields":[{"name":"a","type":"a b"}]}`}},
		"an unknown member": {{"ask_user", `{"prompt":"x","url":"y"}`}},
		"no object":         {{"ask_user", `[]`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, approvals)
			s.model.play(chatWire().says(reply{calls: calls, stop: "tool_calls"}), answer1("ok"))
			got := s.run(t, "run-1", "go")
			got.wantFinished(t, "stop")
			if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(fault.ToolArgumentsInvalid) {
				t.Errorf("errors: %+v", e)
			}
		})
	}
	t.Run("the first of two", func(t *testing.T) {
		s := newStand(t, approvals)
		s.model.play(chatWire().says(reply{calls: []called{{"ask_user", someForm}, {"ask_user", `{"prompt":"Why?"}`}}, stop: "tool_calls"}))
		got := s.run(t, "run-1", "go")
		if q := got.wantInterrupted(t); q.Prompt != "Why?" || q.Fields[0].FieldName != "answer" || len(of[event.ToolError](got)) != 1 {
			t.Errorf("asked: %+v", q)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		s := newStand(t)
		s.model.play(callsTool("ask_user", someForm), answer1("ok"))
		got := s.run(t, "run-1", "go")
		got.wantFinished(t, "stop")
		if w := of[event.Warning](got); len(w) != 1 || w[0].Code != "unknown_tool" {
			t.Errorf("warnings: %+v", w)
		}
	})
}

// A final count of what was used comes before the question.
func TestUsageOfAnInterruptedRun(t *testing.T) {
	s := newStand(t, approvals)
	s.model.play(chatWire().says(reply{calls: []called{{"fs_read_file", "{}"}}, stop: "tool_calls", input: 10, output: 2}))
	got := s.run(t, "run-1", "go")
	got.wantInterrupted(t)
	if u := of[event.UsageUpdated](got); len(u) != 1 || !u[0].Final || *u[0].InputTokens != 10 {
		t.Errorf("usage: %+v", u)
	}
	var s2 state
	must(t, json.Unmarshal([]byte(s.thread.payload()), &s2))
	if s2.Interrupt != got.wantInterrupted(t).InterruptID {
		t.Errorf("the state waits for %q", s2.Interrupt)
	}
}
