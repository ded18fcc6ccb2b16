package agui_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/agui"
)

// The client has the calls that waited: a resumed run sends their results on the
// ids that it knows, and neither start nor arguments nor end again.
func TestAResumedRunSendsResultsAlone(t *testing.T) {
	t.Parallel()
	carried := []event.Carried{{ToolCallID: "1", Decision: event.DecisionApprove}, {ToolCallID: "2", Decision: event.DecisionReject}}
	m := event.NewMachine("run_2", "c", event.Bounds{}, carried...)
	var events []event.Event
	for _, d := range []event.Draft{
		root(event.RunStarted{HarnessID: "native", AdapterVersion: "1"}), returns("1", `"done"`), fails("2"), calls("3", `{"path":"b.txt"}`), returns("3", `"b"`), finishes(),
	} {
		e := m.Stamp(d, time.UnixMilli(1786924800000).UTC())
		if err := m.Accept(e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	frames := encode(t, agui.NewEncoder("thread", "client-run-2", agui.Resumes("run_1", carried)), events...)
	var got []string
	for _, f := range frames {
		kind := strings.Split(string(f), `"`)[3]
		for _, id := range []string{"run_1/call/1", "run_1/call/2", "run_2/call/3"} {
			if strings.Contains(string(f), id) {
				got = append(got, kind+" "+id)
			}
		}
	}
	want := []string{
		"TOOL_CALL_RESULT run_1/call/1", "TOOL_CALL_RESULT run_1/call/2",
		"TOOL_CALL_START run_2/call/3", "TOOL_CALL_ARGS run_2/call/3", "TOOL_CALL_END run_2/call/3", "TOOL_CALL_RESULT run_2/call/3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Where a resumed run asks again, its snapshot has the results of the calls that
// waited where the client has put them: behind the message that made the calls.
func TestASnapshotOfAResumedRunHasResultsInTheirPlace(t *testing.T) {
	t.Parallel()
	input, err := agui.ParseInput([]byte(`{"threadId":"thread","runId":"client-run-2","messages":[` +
		`{"id":"user-1","role":"user","content":"hi"},` +
		`{"id":"run_1/text/1","role":"assistant","content":"May I?","toolCalls":[{"id":"run_1/call/1","type":"function","function":{"name":"fs.read","arguments":"{}"}}]},` +
		`{"id":"run_1/reasoning/1","role":"reasoning","content":"hm"}],` +
		`"resume":[{"interruptId":"interrupt-0","status":"resolved","payload":{"decision":"approve"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	carried := []event.Carried{{ToolCallID: "1", Decision: event.DecisionApprove}}
	run := stamped("run_2", returns("1", `"done"`), calls("2", `{"path":"a.txt"}`), asksToApprove("2"), waits(event.InterruptedForToolApproval))
	frames := encode(t, agui.NewEncoder("thread", "client-run-2", agui.Resumes("run_1", carried), agui.Echo(input)), run...)
	var snapshot struct {
		Messages []struct{ ID string }
	}
	if err := json.Unmarshal(frames[len(frames)-2], &snapshot); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range snapshot.Messages {
		got = append(got, m.ID)
	}
	want := []string{"user-1", "run_1/text/1", "run_2/result/1", "run_1/reasoning/1", "run_2/call/2"}
	if !slices.Equal(got, want) {
		t.Errorf("the snapshot has %q, want %q", got, want)
	}
}
