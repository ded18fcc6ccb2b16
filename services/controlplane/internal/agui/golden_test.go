package agui_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/agui"
)

var update = flag.Bool("update", false, "write the goldens anew")

// goldens are whole runs. testdata/streams has what each becomes, one frame a
// line; tests/agui reads every one of them with the real client.
func goldens() map[string][]event.Event {
	helper := event.NamespaceEntered{AgentID: "helper", AgentName: "The helper", ParentToolCallID: "1"}
	below := event.NamespaceEntered{AgentID: "second", AgentName: "Another", ParentToolCallID: "2"}
	exits := func(d event.NamespaceEntered, o event.NamespaceOutcome, path ...string) event.Draft {
		return in(event.NamespaceExited{AgentID: d.AgentID, ParentToolCallID: d.ParentToolCallID, Outcome: o}, path...)
	}
	thinks := root(event.ReasoningStarted{MessageID: "1"})
	used := root(event.UsageUpdated{InputTokens: new(uint64(120)), OutputTokens: new(uint64(7)), CachedInputTokens: new(uint64(0)), Final: true})
	cancelled := root(event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsPossible})
	form := root(event.InterruptRequested{
		InterruptID: "interrupt-1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Where shall it run?",
		Fields: []event.FormField{
			{FieldName: "region", FieldLabel: "Region", FieldType: "select", FieldValues: []string{"eu", "us"}, Required: true, DefaultValue: `"eu"`},
			{FieldName: "note", FieldDescription: "Anything else", FieldType: "text"},
		},
	})
	return map[string][]event.Event{
		"text": stamped(runID, starts("1"), says("1", "Grüße, \"Welt\" 😀"), says("1", "\n<b>&\u2028 .\n"), stops("1"), used, finishes()),
		"reasoning": stamped(runID,
			thinks, root(event.ReasoningDelta{MessageID: "1", Delta: "hm"}), root(event.ReasoningFinished{MessageID: "1"}),
			starts("1"), says("1", "Yes."), stops("1"), finishes()),
		"tool": stamped(runID,
			starts("1"), says("1", "I look."), stops("1"), callsFor("1", `{"path":"a.txt"}`, "1"), returns("1", `"one line"`),
			starts("2"), says("2", "It has one line."), stops("2"), used, finishes()),
		"tools-at-once": stamped(runID,
			starts("1"), says("1", "Both."), callsFor("1", `{"path":"a.txt"}`, "1"), callsFor("2", `{}`, "1"), says("1", " Now."), stops("1"),
			argues("2", `{"path"`), argues("2", `:"b.txt"}`), returns("2", `{"lines":[1,null]}`), returns("1", `""`),
			starts("2"), says("2", "Done."), stops("2"), finishes()),
		"tool-error": stamped(runID, calls("1", `{}`), argues("1", `{"path":"a`), fails("1"), starts("1"), says("1", "It failed."), stops("1"), finishes()),
		"warning": stamped(runID,
			root(event.Warning{Code: "mcp_server_unavailable", Message: "A tool server is away.", Details: `{"server":"fs","last":null}`}),
			root(event.ProviderMetadata{Provider: "p", Model: "m", Metadata: `{"region":"eu"}`}), finishes()),
		"subagents": stamped(runID,
			calls("1", `{"task":"read"}`), in(helper, "a"), in(event.TextStarted{MessageID: "1"}, "a"), in(event.TextDelta{MessageID: "1", Delta: "I read."}, "a"),
			in(event.TextFinished{MessageID: "1"}, "a"), in(event.ToolStarted{ToolCallID: "2", ToolName: "agents.ask", Arguments: `{}`, ParentMessageID: "1"}, "a"),
			in(below, "a", "b"), exits(below, event.NamespaceError, "a", "b"), in(below, "a", "b"), exits(below, event.NamespaceSuccess, "a", "b"),
			in(event.ToolFinished{ToolCallID: "2", Result: `"ok"`}, "a"), exits(helper, event.NamespaceSuccess, "a"), returns("1", `"ok"`), finishes()),
		"cancelled": stamped(runID,
			starts("1"), says("1", "I am go"), calls("1", `{}`), argues("1", `{"pa`), in(helper, "a"), in(event.ReasoningStarted{MessageID: "1"}, "a"), used, cancelled),
		"error": stamped(runID,
			starts("1"), says("1", "I am go"), calls("1", `{"path":"a.txt"}`),
			root(event.RunError{Code: "sandbox_evicted", Message: "The sandbox went away during the run.", SideEffectStatus: event.SideEffectsKnown})),
		"interrupt-form": stamped(runID, starts("1"), says("1", "One question."), stops("1"), form, waits(event.InterruptedForHumanInput)),
		"interrupt-approval": stamped(runID,
			thinks, root(event.ReasoningFinished{MessageID: "1"}), calls("3", `{"path":"c.txt"}`), returns("3", `"c"`), calls("4", `{}`), fails("4"),
			starts("1"), says("1", "May I?"), stops("1"), callsFor("1", `{"path":"a.txt"}`, "1"), callsFor("2", `{"path":"a.txt"}`, "1"),
			asksToApprove("1", "2"), waits(event.InterruptedForToolApproval)),
		// The second turn of a conversation uses the ids of the first again.
		"turn-1": stamped("run_1", starts("1"), says("1", "First."), stops("1"), calls("1", `{"path":"a.txt"}`), returns("1", `"a"`), finishes()),
		"turn-2": stamped("run_2", starts("1"), says("1", "Second."), stops("1"), calls("1", `{"path":"b.txt"}`), returns("1", `"b"`), finishes()),
	}
}

func TestGoldenStreams(t *testing.T) {
	t.Parallel()
	for name, run := range goldens() {
		e := agui.NewEncoder(threadID, clientID, echoed(t))
		if name == "interrupt-approval" {
			e.SetRevision(3)
		}
		frames := encode(t, e, run...)
		got := append(bytes.Join(frames, []byte("\n")), '\n')
		file := filepath.Join("testdata", "streams", name+".jsonl")
		if *update {
			if err := os.WriteFile(file, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s became\n%s", name, got)
		}
		r := reader{threadID: threadID, runID: clientID, echo: 1}
		if err := r.read(frames); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	files, err := filepath.Glob("testdata/streams/*")
	if err != nil || len(files) != len(goldens()) {
		t.Errorf("%d files for the goldens %v (%v)", len(files), slices.Sorted(maps.Keys(goldens())), err)
	}
}

// An encoder that is asked again says the same.
func TestEncodingIsAFunctionOfTheRun(t *testing.T) {
	t.Parallel()
	for name, run := range goldens() {
		first := encode(t, agui.NewEncoder(threadID, clientID), run...)
		if again := encode(t, agui.NewEncoder(threadID, clientID), run...); !slices.EqualFunc(first, again, bytes.Equal) {
			t.Errorf("%s is encoded in two ways", name)
		}
	}
}
