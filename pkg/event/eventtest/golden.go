package eventtest

import (
	"maps"
	"time"

	"cofferdam.dev/pkg/event"
)

// Ids of the runs of Goldens.
const (
	GoldenRunID          = "run_1"
	GoldenConversationID = "thread-1"
)

// Golden is a whole run of which every encoding has a golden.
type Golden struct {
	Events []event.Event
	// Carried are the calls that the run takes over from AskedBy, the run that it
	// resumes.
	Carried []event.Carried
	AskedBy string
	// Revision is that of the interrupt that the run ends with, or 0.
	Revision uint64
}

// Goldens are runs by name which, taken together, have every type of event, each
// field of each payload present and, where it may be, absent, and each word that a
// field may have. The machine accepts them all.
func Goldens() map[string]Golden {
	out := map[string]Golden{
		// The second turn of a conversation uses the ids of the first again.
		"turn-1": {Events: begun("run_1", starts("1"), says("1", "First."), stops("1"), calls("1", `{"path":"a.txt"}`), returns("1", `"a"`), finishes())},
		"turn-2": {Events: begun("run_2", starts("1"), says("1", "Second."), stops("1"), calls("1", `{"path":"b.txt"}`), returns("1", `"b"`), finishes())},
	}
	for _, some := range []map[string]Golden{saying(), calling(), delegating(), ending(), asking()} {
		maps.Copy(out, some)
	}
	return out
}

// saying are runs of text, of what is beside it, and of what says nothing to people.
func saying() map[string]Golden {
	thinks := root(event.ReasoningStarted{MessageID: "1"})
	return map[string]Golden{
		"text": golden(starts("1"), says("1", "Grüße, \"Welt\" 😀"), says("1", "\n<b>&\u2028 .\n"), stops("1"), used(), finishes()),
		"reasoning": golden(
			thinks, root(event.ReasoningDelta{MessageID: "1", Delta: "hm"}), root(event.ReasoningFinished{MessageID: "1"}),
			starts("1"), says("1", "Yes."), stops("1"), finishes()),
		"warning": golden(
			root(event.Warning{Code: "mcp_server_unavailable", Message: "A tool server is away.", Details: `{"server":"fs","last":null}`}),
			root(event.ProviderMetadata{Provider: "p", Model: "m", Metadata: `{"region":"eu"}`}), finishes()),
		"usage": {Events: stamped(GoldenRunID,
			root(event.RunStarted{MessageID: "answer-1", HarnessID: "acp", AdapterVersion: "2.1.0", ProviderRunID: "session-1"}),
			root(event.UsageUpdated{}), root(event.UsageUpdated{InputTokens: new(uint64(1))}),
			root(event.Warning{Code: "slow", Message: "This takes a while."}),
			root(event.UsageUpdated{OutputTokens: new(uint64(5)), Cost: new(0.25), Currency: new("EUR"), Final: true}),
			root(event.RunFinished{StopReason: "max_tokens", ThreadState: event.Ephemeral()}))},
	}
}

// calling are runs that call tools.
func calling() map[string]Golden {
	return map[string]Golden{
		"tool": golden(
			starts("1"), says("1", "I look."), stops("1"), callsFor("1", `{"path":"a.txt"}`, "1"), returns("1", `"one line"`),
			starts("2"), says("2", "It has one line."), stops("2"), used(), finishes()),
		"tools-at-once": golden(
			starts("1"), says("1", "Both."), callsFor("1", `{"path":"a.txt"}`, "1"), callsFor("2", `{}`, "1"), says("1", " Now."), stops("1"),
			argues("2", `{"path"`), argues("2", `:"b.txt"}`), returns("2", `{"lines":[1,null]}`), returns("1", `""`),
			starts("2"), says("2", "Done."), stops("2"), finishes()),
		"tool-error": golden(
			calls("1", `{}`), argues("1", `{"path":"a`), fails("1"),
			calls("2", `{"path":"b"}`), root(event.ToolError{ToolCallID: "2", Code: "tool_denied", Message: "This tool may not be called."}),
			starts("1"), says("1", "It failed."), stops("1"), finishes()),
		"tool-reference": golden(
			calls("1", `{"path":"large.txt"}`), root(event.ToolFinished{ToolCallID: "1", Result: `"the beginning"`, ResultRef: "file-1"}), finishes()),
		"resumed": {
			Events: begun("run_2", returns("1", `"done"`), root(event.ToolError{ToolCallID: "2", Code: "tool_denied", Message: "A person rejected this call."}),
				calls("3", `{"path":"b.txt"}`), returns("3", `"b"`), starts("1"), says("1", "Done."), stops("1"), finishes()),
			Carried: []event.Carried{{ToolCallID: "1", Decision: event.DecisionEdit}, {ToolCallID: "2", Decision: event.DecisionReject}},
			AskedBy: GoldenRunID,
		},
	}
}

// delegating are runs with subagents.
func delegating() map[string]Golden {
	helper := event.NamespaceEntered{AgentID: "helper", AgentName: "The helper", ParentToolCallID: "1"}
	below := event.NamespaceEntered{AgentID: "second", AgentName: "Another", ParentToolCallID: "2"}
	asks := func(id string) event.Draft { return in(approval(id).Data, "a") }
	return map[string]Golden{
		"subagents": golden(
			calls("1", `{"task":"read"}`), in(helper, "a"), in(event.TextStarted{MessageID: "1"}, "a"), in(event.TextDelta{MessageID: "1", Delta: "I read."}, "a"),
			in(event.TextFinished{MessageID: "1"}, "a"), in(event.ToolStarted{ToolCallID: "2", ToolName: "agents.ask", Arguments: `{}`, ParentMessageID: "1"}, "a"),
			in(below, "a", "b"), leaves(below, event.NamespaceError, "a", "b"), in(below, "a", "b"), leaves(below, event.NamespaceSuccess, "a", "b"),
			in(event.ToolFinished{ToolCallID: "2", Result: `"ok"`}, "a"), leaves(helper, event.NamespaceSuccess, "a"), returns("1", `"ok"`), finishes()),
		"subagent-cancelled": golden(
			calls("1", `{"task":"read"}`), in(helper, "a"), leaves(helper, event.NamespaceCancelled, "a"),
			root(event.ToolError{ToolCallID: "1", Code: "cancelled", Message: "The other agent was cancelled."}), finishes()),
		"interrupt-subagent": {Revision: 4, Events: begun(GoldenRunID,
			calls("1", `{"task":"read"}`), in(helper, "a"), in(event.ToolStarted{ToolCallID: "2", ToolName: "fs.read_text_file", Arguments: `{"path":"a.txt"}`}, "a"),
			asks("2"), leaves(helper, event.NamespaceInterrupted, "a"), waits(event.InterruptedForToolApproval))},
	}
}

// ending are runs that are ended from outside, or by what went wrong.
func ending() map[string]Golden {
	helper := event.NamespaceEntered{AgentID: "helper", AgentName: "The helper", ParentToolCallID: "1"}
	cancelled := func(reason event.CancelReason, effects event.SideEffectStatus) event.Draft {
		return root(event.RunCancelled{Reason: reason, SideEffectStatus: effects})
	}
	return map[string]Golden{
		"cancelled": golden(
			starts("1"), says("1", "I am go"), calls("1", `{}`), argues("1", `{"pa`), in(helper, "a"), in(event.ReasoningStarted{MessageID: "1"}, "a"), used(),
			cancelled(event.CancelledByClient, event.SideEffectsPossible)),
		"cancelled-disconnect": golden(starts("1"), says("1", "Is any"), cancelled(event.CancelledByDisconnect, event.SideEffectsNone)),
		"cancelled-deadline":   golden(calls("1", `{"path":"a.txt"}`), cancelled(event.CancelledByDeadline, event.SideEffectsKnown)),
		"cancelled-shutdown":   golden(cancelled(event.CancelledByShutdown, event.SideEffectsNone)),
		"error": golden(
			starts("1"), says("1", "I am go"), calls("1", `{"path":"a.txt"}`),
			root(event.RunError{Code: "sandbox_evicted", Message: "The sandbox went away during the run.", SideEffectStatus: event.SideEffectsKnown})),
		"error-busy": golden(used(), root(event.RunError{
			Code: "rate_limited", Message: "The model is busy.", Retryable: true, RetryAfterSeconds: new(uint64(30)), SideEffectStatus: event.SideEffectsNone,
		})),
	}
}

// asking are runs that end by asking a person.
func asking() map[string]Golden {
	form := root(event.InterruptRequested{
		InterruptID: "interrupt-1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Where shall it run?",
		Fields: []event.FormField{
			{FieldName: "region", FieldLabel: "Region", FieldType: "select", FieldValues: []string{"eu", "us"}, Required: true, DefaultValue: `"eu"`},
			{FieldName: "note", FieldDescription: "Anything else", FieldType: "text", Placeholder: "Nothing"},
		},
	})
	return map[string]Golden{
		"interrupt-form": {Revision: 2, Events: begun(GoldenRunID, starts("1"), says("1", "One question."), stops("1"), form, waits(event.InterruptedForHumanInput))},
		"interrupt-approval": {Revision: 3, Events: begun(GoldenRunID,
			root(event.ReasoningStarted{MessageID: "1"}), root(event.ReasoningFinished{MessageID: "1"}),
			calls("3", `{"path":"c.txt"}`), returns("3", `"c"`), calls("4", `{}`), fails("4"),
			starts("1"), says("1", "May I?"), stops("1"), callsFor("1", `{"path":"a.txt"}`, "1"), callsFor("2", `{"path":"a.txt"}`, "1"),
			approval("1", "2"), waits(event.InterruptedForToolApproval))},
	}
}

func golden(drafts ...event.Draft) Golden { return Golden{Events: begun(GoldenRunID, drafts...)} }

// begun puts drafts behind run.started.
func begun(run string, drafts ...event.Draft) []event.Event {
	return stamped(run, append([]event.Draft{root(event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"})}, drafts...)...)
}

// stamped puts drafts into envelopes, a millisecond after each other.
func stamped(run string, drafts ...event.Draft) []event.Event {
	at := time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC)
	out := make([]event.Event, len(drafts))
	for i, d := range drafts {
		out[i] = d.Event(run, GoldenConversationID, uint64(i), at.Add(time.Duration(i)*time.Millisecond))
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

func leaves(d event.NamespaceEntered, o event.NamespaceOutcome, path ...string) event.Draft {
	return in(event.NamespaceExited{AgentID: d.AgentID, ParentToolCallID: d.ParentToolCallID, Outcome: o}, path...)
}

func used() event.Draft {
	return root(event.UsageUpdated{InputTokens: new(uint64(120)), OutputTokens: new(uint64(7)), CachedInputTokens: new(uint64(0)), Final: true})
}

func finishes() event.Draft {
	return root(event.RunFinished{StopReason: "end_turn", ThreadState: event.Committed(8, "head-1")})
}

func approval(ids ...string) event.Draft {
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
