package agui_test

import (
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/agui"
)

const (
	threadID = "thread-1"
	clientID = "client-run-1"
	runID    = "run_1"
)

// begun is the moment of the first event; each one more is a millisecond later.
func begun() time.Time { return time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC) }

// stamped puts drafts into envelopes of a run, behind run.started.
func stamped(run string, drafts ...event.Draft) []event.Event {
	all := append([]event.Draft{root(event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"})}, drafts...)
	out := make([]event.Event, len(all))
	for i, d := range all {
		out[i] = d.Event(run, threadID, uint64(i), begun().Add(time.Duration(i)*time.Millisecond))
	}
	return out
}

func root(d event.Data) event.Draft               { return event.Draft{Data: d} }
func in(d event.Data, path ...string) event.Draft { return event.Draft{Namespace: path, Data: d} }

func starts(id string) event.Draft { return root(event.TextStarted{MessageID: id}) }

func says(id, text string) event.Draft { return root(event.TextDelta{MessageID: id, Delta: text}) }

func stops(id string) event.Draft                    { return root(event.TextFinished{MessageID: id}) }
func calls(id string, args event.Object) event.Draft { return callsFor(id, args, "") }

func callsFor(id string, args event.Object, parent string) event.Draft {
	return root(event.ToolStarted{ToolCallID: id, ToolName: "fs.read_text_file", Arguments: args, ParentMessageID: parent})
}

func argues(id, delta string) event.Draft {
	return root(event.ToolArgumentsDelta{ToolCallID: id, Delta: delta})
}

func returns(id string, result event.Value) event.Draft {
	return root(event.ToolFinished{ToolCallID: id, Result: result})
}

func fails(id string) event.Draft {
	return root(event.ToolError{ToolCallID: id, Code: "tool_unavailable", Message: "The tool's server does not answer. Try again.", Retryable: true})
}

func finishes() event.Draft {
	return root(event.RunFinished{StopReason: "end_turn", ThreadState: event.Committed(8, "head-1")})
}

func asksToApprove(ids ...string) event.Draft {
	d := event.InterruptRequested{InterruptID: "interrupt-1", InterruptType: event.InterruptToolApproval, AgentID: "demo"}
	for _, id := range ids {
		d.ToolApprovals = append(d.ToolApprovals, event.ToolApproval{
			ToolCallID: id, ToolName: "fs.read_text_file", ToolArgs: `{"path":"a.txt"}`,
			AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject},
		})
	}
	return root(d)
}

func waits(reason event.InterruptReason) event.Draft {
	return root(event.RunInterrupted{InterruptID: "interrupt-1", Reason: reason})
}

// echoed is what a client sent that has one message and some state.
func echoed(t *testing.T) agui.Option {
	t.Helper()
	input, err := agui.ParseInput([]byte(`{"threadId":"` + threadID + `","runId":"` + clientID + `","state":{"page":3},` +
		`"messages":[{"id":"user-1","role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return agui.Echo(input)
}
