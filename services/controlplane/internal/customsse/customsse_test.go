package customsse_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/customsse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func root(d event.Data) event.Draft { return event.Draft{Data: d} }

func in(d event.Data, path ...string) event.Draft { return event.Draft{Namespace: path, Data: d} }

// run is what a run_1 emits after run.started.
func run(drafts ...event.Draft) []event.Event {
	out := []event.Event{root(event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"}).Event("run_1", "c1", 0, time.UnixMilli(0).UTC())}
	for i, d := range drafts {
		out = append(out, d.Event("run_1", "c1", uint64(i+1), time.UnixMilli(int64(i)).UTC()))
	}
	return out
}

func encode(tb interface {
	Helper()
	Fatalf(format string, args ...any)
}, e *customsse.Encoder, events ...event.Event,
) (frames []customsse.Frame) {
	tb.Helper()
	for _, ev := range events {
		more, err := e.Encode(ev)
		if err != nil {
			tb.Fatalf("encode %s: %v", ev.Type(), err)
		}
		frames = append(frames, more...)
	}
	return frames
}

// One row and more for each row of the contract's table: what came before, the
// event, and its frames as they stand on the wire.
func TestEncodingOfEachEvent(t *testing.T) {
	t.Parallel()
	type drafts = []event.Draft
	text := root(event.TextStarted{MessageID: "m"})
	thinks := root(event.ReasoningStarted{MessageID: "m"})
	calls := root(event.ToolStarted{ToolCallID: "1", ToolName: "fs.read", Arguments: `{"path":"a.txt"}`})
	enters := in(event.NamespaceEntered{AgentID: "helper", AgentName: "The helper", ParentToolCallID: "1"}, "a")
	exits := in(event.NamespaceExited{AgentID: "helper", ParentToolCallID: "1", Outcome: event.NamespaceSuccess}, "a")
	form := event.InterruptRequested{
		InterruptID: "i", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Which?",
		Fields: []event.FormField{{FieldName: "which", FieldType: "text", Required: true}},
	}
	approval := event.InterruptRequested{
		InterruptID: "i", InterruptType: event.InterruptToolApproval, AgentID: "demo",
		ToolApprovals: []event.ToolApproval{{ToolCallID: "1", ToolName: "fs.read", ToolArgs: `{"path":"a.txt"}`, AllowedDecisions: []event.Decision{event.DecisionApprove}}},
	}
	waits := func(why event.InterruptReason) event.Draft {
		return root(event.RunInterrupted{InterruptID: "i", Reason: why})
	}
	finished := root(event.RunFinished{StopReason: "end_turn", ThreadState: event.Committed(8, "head-8")})
	for name, row := range map[string]struct {
		before drafts
		event  event.Draft
		want   []string // # is the tail of the event
	}{
		"text.started":       {nil, text, nil},
		"text.delta":         {drafts{text}, root(event.TextDelta{MessageID: "m", Delta: "<b>\n\u2028"}), []string{`content {"message_id":"m","delta":"<b>\n\u2028",#}`}},
		"text.finished":      {drafts{text}, root(event.TextFinished{MessageID: "m"}), nil},
		"reasoning.started":  {nil, thinks, nil},
		"reasoning.delta":    {drafts{thinks}, root(event.ReasoningDelta{MessageID: "m", Delta: "hm"}), []string{`reasoning {"message_id":"m","delta":"hm",#}`}},
		"reasoning.finished": {drafts{thinks}, root(event.ReasoningFinished{MessageID: "m"}), nil},
		"tool.started":       {nil, calls, []string{`tool_start {"tool_call_id":"1","tool_name":"fs.read","arguments":{"path":"a.txt"},#}`}},
		"tool.arguments.delta": {
			drafts{root(event.ToolStarted{ToolCallID: "1", ToolName: "fs.read", Arguments: `{}`})},
			root(event.ToolArgumentsDelta{ToolCallID: "1", Delta: "{}"}), nil,
		},
		"tool.finished": {drafts{calls}, root(event.ToolFinished{ToolCallID: "1", Result: `"12"`, ResultRef: "file-1"}), []string{
			`tool_end {"tool_call_id":"1","result":"12","result_ref":"file-1",#}`,
		}},
		"tool.error": {drafts{calls}, root(event.ToolError{ToolCallID: "1", Code: "tool_unavailable", Message: "Try again.", Retryable: true}), []string{
			`tool_end {"tool_call_id":"1","code":"tool_unavailable","message":"Try again.","retryable":true,#}`,
		}},
		"namespace.entered": {drafts{calls}, enters, []string{
			`namespace {"agent_id":"helper","agent_name":"The helper","parent_tool_call_id":"1",#["a"]}`,
		}},
		"namespace.exited": {drafts{calls, enters}, exits, []string{
			`namespace {"agent_id":"helper","parent_tool_call_id":"1","outcome":"success",#["a"]}`,
		}},
		"warning": {nil, root(event.Warning{Code: "slow", Message: "Wait.", Details: `{"server":"fs"}`}), []string{
			`warning {"code":"slow","message":"Wait.","details":{"server":"fs"},#}`,
		}},
		"usage.updated": {nil, root(event.UsageUpdated{InputTokens: new(uint64(1))}), nil},
		"usage.updated, final": {nil, root(event.UsageUpdated{InputTokens: new(uint64(1)), Final: true}), []string{
			`usage {"input_tokens":1,"output_tokens":null,"cached_input_tokens":null,"cost":null,"currency":null,"final":true,#}`,
		}},
		"provider.metadata":   {nil, root(event.ProviderMetadata{Provider: "p", Model: "m", Metadata: `{"region":"eu"}`}), nil},
		"interrupt.requested": {nil, root(form), nil},
		"run.interrupted, form": {drafts{root(form)}, waits(event.InterruptedForHumanInput), []string{
			`input_required {"interrupt_id":"i","interrupt_type":"form_input","agent_id":"demo","prompt":"Which?","fields":[{"field_name":"which","field_type":"text","required":true}],"revision":3,#}`,
		}},
		"run.interrupted, approval": {drafts{calls, root(approval)}, waits(event.InterruptedForToolApproval), []string{
			`input_required {"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"demo",` +
				`"tool_approvals":[{"tool_call_id":"1","tool_name":"fs.read","tool_args":{"path":"a.txt"},"allowed_decisions":["approve"]}],"revision":3,#}`,
		}},
		"run.finished": {nil, finished, []string{
			`done {"outcome":"success","stop_reason":"end_turn","thread_state":{"durability":"committed","durable_revision":8,"head_ref":"head-8"},#}`,
		}},
		"run.cancelled": {nil, root(event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone}), []string{
			`cancelled {"reason":"client_request","side_effect_status":"none",#}`,
		}},
		"run.error, with what is open": {drafts{calls, enters}, root(event.RunError{Code: "sandbox_evicted", Message: "Gone.", Retryable: true, SideEffectStatus: event.SideEffectsPossible}), []string{
			`namespace {"agent_id":"helper","parent_tool_call_id":"1","outcome":"error",#["a"]}`,
			`tool_end {"tool_call_id":"1","code":"sandbox_evicted","message":"The run failed before this tool call ended.","retryable":false,#}`,
			`error {"code":"sandbox_evicted","message":"Gone.","retryable":true,"side_effect_status":"possible",#}`,
		}},
	} {
		all := run(append(slices.Clone(row.before), row.event)...)
		e := customsse.NewEncoder(nil)
		e.SetRevision(3)
		encode(t, e, all[:len(all)-1]...)
		var got []string
		for _, f := range encode(t, e, all[len(all)-1]) {
			tail := `"run_id":"run_1","sequence":` + strconv.Itoa(len(all)-1) + `,"namespace":`
			data := strings.Replace(string(f.Data), tail+"[]", "#", 1)
			got = append(got, f.Event+" "+strings.Replace(data, tail, "#", 1))
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s became\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(row.want, "\n"))
		}
	}
}

// Every run that the lifecycle allows becomes frames of strict JSON that begin what
// they end, hold the whole text, and end by one terminal.
func TestEveryRunBecomesAStream(t *testing.T) {
	t.Parallel()
	terminal := map[string]bool{"done": true, "cancelled": true, "error": true, "input_required": true}
	rapid.Check(t, func(t *rapid.T) {
		events := eventtest.Run().Draw(t, "run")
		var want, got strings.Builder
		for _, ev := range events {
			if d, ok := ev.Data.(event.TextDelta); ok {
				want.WriteString(d.Delta)
			}
		}
		frames := encode(t, customsse.NewEncoder(nil), events...)
		open := map[string]bool{}
		for i, f := range frames {
			var body struct {
				RunID      string `json:"run_id"`
				ToolCallID string `json:"tool_call_id"`
				Delta      string `json:"delta"`
			}
			if err := strictjson.Check(f.Data, strictjson.Options{}); err != nil {
				t.Fatalf("%s: %v", f.Data, err)
			}
			unmarshal(t, f.Data, &body)
			if body.RunID != events[0].RunID || terminal[f.Event] != (i == len(frames)-1) {
				t.Fatalf("frame %d of %d is %s of %s", i+1, len(frames), f.Event, body.RunID)
			}
			switch f.Event {
			case "content":
				got.WriteString(body.Delta)
			case "tool_start":
				open[body.ToolCallID] = true
			case "tool_end":
				if !open[body.ToolCallID] {
					t.Fatalf("the call %s ends and is not open", body.ToolCallID)
				}
				delete(open, body.ToolCallID)
			}
		}
		if last := frames[len(frames)-1].Event; len(open) > 0 && last != "input_required" {
			t.Fatalf("%s leaves calls open: %v", last, open)
		}
		if got.String() != want.String() {
			t.Fatalf("the stream says %q, the run %q", got.String(), want.String())
		}
	})
}

// A call that waited is the earlier run's: a resumed run ends it and starts it not
// again.
func TestAResumedRunEndsTheCallsThatWaited(t *testing.T) {
	t.Parallel()
	e := customsse.NewEncoder([]event.Carried{{ToolCallID: "1", Decision: event.DecisionApprove}})
	frames := encode(t, e, run(root(event.ToolFinished{ToolCallID: "1", Result: `"ok"`}), root(event.RunFinished{StopReason: "end_turn", ThreadState: event.Ephemeral()}))...)
	if len(frames) != 2 || frames[0].Event != "tool_end" || frames[1].Event != "done" {
		t.Errorf("%s", frames)
	}
}

// What the lifecycle does not allow breaks the stream off, for good.
func TestWhatTheLifecycleDoesNotAllow(t *testing.T) {
	t.Parallel()
	e := customsse.NewEncoder(nil)
	all := run(root(event.TextDelta{MessageID: "m", Delta: "x"}))
	encode(t, e, all[0])
	for range 2 {
		if f, err := e.Encode(all[1]); err == nil {
			t.Errorf("it became %v", f)
		}
	}
}

func unmarshal(t *rapid.T, raw []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}
