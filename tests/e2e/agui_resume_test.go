package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"cofferdam.dev/tests/internal/aguidriver"
	"cofferdam.dev/tests/stack"
)

// The real client is asked for an approval, gives it, and reads the result on the
// call that it knows. The tool is called once.
func TestTheRealAGUIClientApproves(t *testing.T) {
	w := mortal(t)
	l := w.life()
	if err := w.gate.Open(l.name); err != nil {
		t.Fatal(err)
	}
	header, err := w.Token(t.Context(), stack.User)
	if err != nil {
		t.Fatal(err)
	}
	seen := aguidriver.Run(t, aguidriver.Conversation{
		URL: w.API + "/api/v1/agents/" + asking + "/agui", HeaderFile: header, ThreadID: l.conversation,
		Turns: []aguidriver.Turn{
			{RunID: "r-1", Message: l.call("")},
			{RunID: "r-2", Answer: json.RawMessage(`{"decision":"approve"}`)},
			{RunID: "r-3", Message: "What do you remember?"},
		},
	})
	for i, s := range seen {
		if s.Error != "" || len(s.Warnings) > 0 {
			t.Errorf("turn %d: the client gave up or complains: %q %q", i+1, s.Error, s.Warnings)
		}
	}
	asked, answered := seen[0], seen[1]
	if end := asked.Terminal(); end.Outcome() != "interrupt" {
		t.Fatalf("it saw %v, at last %v", asked.Types(), end)
	}
	aguiFinished(t, answered, "r-2", l.conversation)
	id := ""
	for _, e := range asked.Events {
		if e.Type() == "TOOL_CALL_START" {
			id = e.String("toolCallId")
		}
	}
	results := slices.DeleteFunc(slices.Clone(answered.Events), func(e aguidriver.Event) bool { return e.Type() != "TOOL_CALL_RESULT" })
	if len(results) != 1 || id == "" || results[0].String("toolCallId") != id || slices.Contains(answered.Types(), "TOOL_CALL_START") {
		t.Errorf("the call %q got %v", id, results)
	}
	aguiFinished(t, seen[2], "r-3", l.conversation)
	w.calledOnly(t, map[string]int{l.name: 1})
}
