package chat

import (
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

func approvals() event.InterruptRequested {
	all := []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}
	return event.InterruptRequested{InterruptID: "i", InterruptType: event.InterruptToolApproval, AgentID: "demo", ToolApprovals: []event.ToolApproval{
		{ToolCallID: "c1", ToolName: "fs.write_file", ToolArgs: `{"path":"a\u001b[2J"}`, AllowedDecisions: all},
		{ToolCallID: "c2", ToolName: "fs.move", ToolArgs: `{}`, AllowedDecisions: all},
		{ToolCallID: "c3", ToolName: "fs.delete", ToolArgs: `{}`, AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionReject}},
	}}
}

func form() event.InterruptRequested {
	return event.InterruptRequested{InterruptID: "i2", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Where to?", Fields: []event.FormField{
		{FieldName: "region", FieldLabel: "Region", FieldType: "select", FieldValues: []string{"eu", "us"}, Required: true},
		{FieldName: "count", FieldType: "integer", DefaultValue: "3"},
		{FieldName: "really", FieldType: "boolean", Required: true},
		{FieldName: "note", FieldType: "text"},
	}}
}

// What an agent asks in a turn is answered in lines, one question after another, and what
// does not fit is asked again.
func TestQuestionsOfAnAgent(t *testing.T) {
	w := &world{answer: []event.Data{event.RunInterrupted{InterruptID: "i", Reason: event.InterruptedForToolApproval}}}
	in := "write\n" + // the message, before which nothing waited
		"what?\n\napprove\nedit\n{\"to\": 1}\ne\nreject\n" + // c3 cannot be edited
		"asia\n\nyes\n\n" + // none of the regions
		"eu\n\nyes\n\n"
	_, people, err := talk(t, w, in, func(c *Config) {
		c.Out = writerFunc(func(p []byte) (int, error) { return len(p), nil })
		w.begun = func() { w.asks = []event.InterruptRequested{approvals(), form()} }
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"interrupt_id":"i","revision":7,"tool_decisions":[{"tool_call_id":"c1","decision":"approve"},{"tool_call_id":"c2","decision":"edit","arguments":{"to":1}},{"tool_call_id":"c3","decision":"reject"}]}`,
		`{"interrupt_id":"i2","revision":7,"form":{"count":3,"really":true,"region":"eu"}}`,
	}
	if !slices.Equal(w.resumed, want) {
		t.Errorf("answers %q, want %q", w.resumed, want)
	}
	for _, part := range []string{"[may the agent call fs.write_file?]", "approve, edit, reject: ", "approve, reject: ", "Where to?", "Region (eu | us): ", "count (integer; default 3): ", "once more"} {
		if !strings.Contains(people, part) {
			t.Errorf("%q does not say %q", people, part)
		}
	}
	if strings.Contains(people, "\x1b") {
		t.Errorf("%q is obeyed by a terminal", people)
	}
}

// A question that waits is asked before the first message, and one that is open when the
// input ends stays open.
func TestAQuestionThatWaits(t *testing.T) {
	w := &world{answer: []event.Data{end()}, asks: []event.InterruptRequested{approvals()}}
	if _, people, err := talk(t, w, "a\n", nil); err != nil || len(w.resumed) != 0 || !strings.Contains(people, "--conversation c") {
		t.Errorf("%q, %v, answers %q", people, err, w.resumed)
	}
	if _, _, err := talk(t, w, "a\na\na\nhello\n", nil); err != nil || len(w.resumed) != 1 || !slices.Equal(w.messages, []string{"hello"}) {
		t.Errorf("%v, answers %q, messages %q", err, w.resumed, w.messages)
	}
}

// Whoever decides on a call sees all of it that a person can read, or that it was cut.
func TestAVeryLongCallSaysThatItIsCut(t *testing.T) {
	if got := cut(strings.Repeat("x", maxShown)); strings.Contains(got, "cut") {
		t.Error("it was not")
	}
	if got := cut(strings.Repeat("ä", maxShown)); !strings.HasSuffix(got, "[cut: these are the first 16384 bytes of 32768]") {
		t.Errorf("…%q", got[len(got)-80:])
	}
}
