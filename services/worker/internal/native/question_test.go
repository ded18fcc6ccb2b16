package native

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

const (
	toolAsks = `{"content":[{"type":"text","text":"The tool asks the user."}],"isError":true}`
	toolDone = `{"content":[{"type":"text","text":"went on"}]}`
)

// questionOfTool is what the broker gives of a tool that asks.
func questionOfTool(id string) *event.InterruptRequested {
	return &event.InterruptRequested{
		InterruptID: id, InterruptType: event.InterruptFormInput, AgentID: "agent-of-the-record", Prompt: "Which branch, " + id + "?",
		Fields: []event.FormField{{FieldName: "branch", FieldType: "text", Required: true}},
	}
}

// inquiring is a broker whose tools ask before they go on, each call by an interrupt
// of its own; again asks once more for that answer.
func inquiring(again string) func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
	return func(_ context.Context, c harness.ToolCall) (harness.ToolResult, error) {
		switch {
		case c.Answer == nil:
			return harness.ToolResult{Result: json.RawMessage(toolAsks), IsError: true, Asks: questionOfTool("input_" + c.ToolID)}, nil
		case again != "" && strings.Contains(string(c.Answer.Form), again):
			return harness.ToolResult{Result: json.RawMessage(toolAsks), IsError: true, Asks: questionOfTool(c.CallID + "_again")}, nil
		default:
			return harness.ToolResult{Result: json.RawMessage(toolDone)}, nil
		}
	}
}

func forms(c *harness.Construction) { c.Interrupts.FormInput = true }

// A tool's question becomes the interrupt, word for word. The call that asked has
// ended; the answer is brought by a call of its own, in a worker that has never
// seen the first; and the model reads one result.
func TestAToolThatAsks(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		for name, decision := range map[string]event.ResumeDecision{
			"answered": {Form: `{"branch":"main"}`}, "dismissed": {Dismiss: true},
		} {
			t.Run(name, func(t *testing.T) {
				s := newStand(t, on(w, forms)...)
				s.tools.answer = inquiring("")
				s.model.play(w.says(reply{calls: []called{{"fs_list", `{"path":"a"}`}}, stop: "tool_calls"}))
				before := s.run(t, "run-1", "go")
				if want := "run.started tool.started tool.finished interrupt.requested run.interrupted"; before.types() != want {
					t.Errorf("events: %s", before.types())
				}
				q, want := before.wantInterrupted(t), questionOfTool("input_fs.list")
				if q.InterruptID != want.InterruptID || q.AgentID != want.AgentID || q.Prompt != want.Prompt || len(q.Fields) != 1 {
					t.Errorf("asked: %+v", q)
				}

				other := s.fresh(t, on(w, forms)...)
				other.model.play(w.says(reply{text: "So it is.", stop: "stop"}))
				after := other.decide(t, "run-2", before, decision)
				after.wantFinished(t, "stop")
				if want := "run.started tool.started tool.finished text.started text.delta text.delta text.finished run.finished"; after.types() != want {
					t.Errorf("events: %s", after.types())
				}
				started := of[event.ToolStarted](after)[0]
				if started.ToolCallID != q.InterruptID || started.ToolName != "fs.list" || started.Arguments != `{"path":"a"}` {
					t.Errorf("tool.started: %+v", started)
				}
				calls := s.tools.called()
				if len(calls) != 2 || calls[1].CallID != q.InterruptID || string(calls[1].Arguments) != `{"path":"a"}` || calls[1].Answer == nil {
					t.Fatalf("calls: %+v", calls)
				}
				a := calls[1].Answer
				if a.RunID != "run-1" || a.CallID != calls[0].CallID || a.Dismissed != decision.Dismiss || string(a.Form) != string(decision.Form) {
					t.Errorf("the answer: %+v", a)
				}
				turns := other.asked(t, w).turns
				if turns[len(turns)-1] != "result went on" {
					t.Errorf("the model reads %q", turns)
				}
			})
		}
	})
}

// A tool asks as often as it likes, and several at once are asked for one after the
// other.
func TestToolsThatAskMore(t *testing.T) {
	s := newStand(t, forms)
	s.tools.answer = inquiring("unfit")
	s.model.play(chatWire().says(reply{calls: []called{{"fs_list", `{}`}, {"fs_read_file", `{"path":"a"}`}}, stop: "tool_calls"}), answer1("ok"))
	run := s.run(t, "run-1", "go")
	for i, step := range []struct{ asks, form string }{
		{"input_fs.list", `{"branch":"unfit"}`}, {"input_fs.list_again", `{"branch":"main"}`}, {"input_fs.read_file", `{"branch":"main"}`},
	} {
		if q := run.wantInterrupted(t); q.InterruptID != step.asks {
			t.Fatalf("%d: asked %s, want %s", i, q.InterruptID, step.asks)
		}
		run = s.decide(t, "run-next-"+step.asks, run, event.ResumeDecision{Form: event.Object(step.form)})
	}
	run.wantFinished(t, "stop")
	var answers []string
	for _, c := range s.tools.called() {
		if c.Answer != nil {
			answers = append(answers, c.CallID+" of "+c.Answer.RunID)
		}
	}
	want := "input_fs.list of run-1, input_fs.list_again of run-next-input_fs.list, input_fs.read_file of run-1"
	if got := strings.Join(answers, ", "); got != want {
		t.Errorf("answers: %s", got)
	}
	if last := s.model.last(t); last[len(last)-1].Content != "went on" || last[len(last)-2].Content != "went on" {
		t.Errorf("the model reads %+v", last)
	}
}

// An approval is asked for before what a tool asks, and an edited call asks and goes
// on with the edited arguments.
func TestAnApprovedToolThatAsks(t *testing.T) {
	s := newStand(t, approvals)
	s.tools.answer = inquiring("")
	s.model.play(chatWire().says(reply{calls: []called{{"fs_read_file", `{"path":"a"}`}, {"fs_list", `{}`}}, stop: "tool_calls"}), answer1("ok"))
	first := s.run(t, "run-1", "go")
	q := first.wantInterrupted(t)
	if len(q.ToolApprovals) != 1 {
		t.Fatalf("asked: %+v", q)
	}
	second := s.decide(t, "run-2", first, event.ResumeDecision{Tools: []event.ToolDecision{{
		ToolCallID: q.ToolApprovals[0].ToolCallID, Decision: event.DecisionEdit, Arguments: `{"path":"b"}`,
	}}})
	if q := second.wantInterrupted(t); q.InterruptID != "input_fs.read_file" {
		t.Fatalf("asked: %+v", q)
	}
	third := s.decide(t, "run-3", second, event.ResumeDecision{Form: `{"branch":"main"}`})
	if q := third.wantInterrupted(t); q.InterruptID != "input_fs.list" {
		t.Fatalf("asked: %+v", q)
	}
	s.decide(t, "run-4", third, event.ResumeDecision{Form: `{"branch":"main"}`}).wantFinished(t, "stop")
	if got := s.tools.names(); got != `fs.list{} fs.read_file{"path":"b"} fs.read_file{"path":"b"} fs.list{}` {
		t.Errorf("calls: %s", got)
	}
}

// Where nobody can be asked, and where nobody answers, the model reads what the
// broker says of the call.
func TestAToolThatAsksInVain(t *testing.T) {
	s := newStand(t)
	s.tools.answer = inquiring("")
	s.model.play(callsTool("fs_list", `{}`), answer1("ok"))
	s.run(t, "run-1", "go").wantFinished(t, "stop")
	if last := s.model.last(t); !strings.Contains(last[len(last)-1].Content, "The tool asks the user.") {
		t.Errorf("the model reads %+v", last)
	}

	s = newStand(t, forms)
	s.tools.answer = inquiring("")
	s.model.play(callsTool("fs_list", `{}`), answer1("ok"))
	s.run(t, "run-1", "go").wantInterrupted(t)
	s.run(t, "run-2", "something else").wantFinished(t, "stop")
	if n := len(s.tools.called()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A subagent's tool asks as the root's does, and the subagent goes on in its
// namespace.
func TestASubagentsToolThatAsks(t *testing.T) {
	w := chatWire()
	s := newStand(t, on(w, delegating, forms, func(c *harness.Construction) { c.Tools[0].ApprovalRequired = false })...)
	s.tools.answer = inquiring("")
	play := s.perAgent(w)
	play.play("be brief", reply{calls: []called{task("reader", "read a")}, stop: "tool_calls"}, reply{text: "It says x.", stop: "stop"})
	play.play("you read", reply{calls: []called{{"fs_read_file", `{"path":"a"}`}}, stop: "tool_calls"}, reply{text: "x", stop: "stop"})
	before := s.run(t, "run-1", "go")
	if q := before.wantInterrupted(t); q.InterruptID != "input_fs.read_file" {
		t.Fatalf("asked: %+v", q)
	}
	want := "run.started@0 tool.started@0 namespace.entered@1 tool.started@1 tool.finished@1 interrupt.requested@1 namespace.exited@1 run.interrupted@0"
	if before.paths() != want {
		t.Errorf("events: %s", before.paths())
	}
	s.decide(t, "run-2", before, event.ResumeDecision{Form: `{"branch":"main"}`}).wantFinished(t, "stop")
	if got := s.tools.called(); len(got) != 2 || got[1].Answer == nil {
		t.Errorf("calls: %+v", got)
	}
}
