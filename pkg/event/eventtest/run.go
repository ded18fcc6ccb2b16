package eventtest

import (
	"strconv"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
)

// Ids of the runs that Run makes.
const (
	RunID          = "run-1"
	ConversationID = "conversation-1"
)

// AskedBy is the run that the resumed runs of Resumed resume.
const AskedBy = "run-0"

// Run is any whole run that the machine accepts, from run.started to one of the
// four terminals: interleaved text, reasoning and tool calls, streamed arguments,
// nested subagents that end in every way, warnings, usage, metadata, interrupts.
func Run() *rapid.Generator[[]event.Event] {
	return rapid.Custom(func(t *rapid.T) []event.Event { return draw(t, nil) })
}

// Resumed is as Run, of a run that takes calls over from AskedBy.
func Resumed() *rapid.Generator[Golden] {
	return rapid.Custom(func(t *rapid.T) Golden {
		var carried []event.Carried
		for i := range rapid.IntRange(1, 3).Draw(t, "carried") {
			carried = append(carried, event.Carried{
				ToolCallID: "carried-" + strconv.Itoa(i),
				Decision:   rapid.SampledFrom([]event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject, ""}).Draw(t, "decision"),
			})
		}
		return Golden{Events: draw(t, carried), Carried: carried, AskedBy: AskedBy}
	})
}

func draw(t *rapid.T, carried []event.Carried) []event.Event {
	r := run{t: t, machine: event.NewMachine(RunID, ConversationID, event.Bounds{}, carried...)}
	r.try(event.Draft{Data: PayloadOf(t, event.TypeRunStarted)})
	for range rapid.IntRange(0, 40).Draw(t, "steps") {
		r.try(r.step())
	}
	r.finish()
	return r.events
}

type run struct {
	t       *rapid.T
	machine *event.Machine
	events  []event.Event
}

// try takes a draft if the machine would.
func (r *run) try(d event.Draft) bool {
	e := r.machine.Stamp(d, moment(r.t))
	if r.machine.Check(e) != nil {
		return false
	}
	if err := r.machine.Accept(e); err != nil {
		r.t.Fatalf("Check and Accept differ: %v", err)
	}
	r.events = append(r.events, e)
	return true
}

// step is a draft that is often acceptable: its ids are few, or are open.
func (r *run) step() event.Draft {
	t := r.t
	d := event.Draft{Namespace: rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"a", "c"}}).Draw(t, "namespace")}
	ident := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}).Draw(t, "id")
	if open := r.machine.OpenItems(); len(open) > 0 && rapid.Bool().Draw(t, "go on") {
		item := rapid.SampledFrom(open).Draw(t, "item")
		d.Namespace = item.Namespace
		return event.Draft{Namespace: item.Namespace, Data: r.goOn(item)}
	}
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		d.Data = event.TextStarted{MessageID: ident}
	case 1:
		d.Data = event.ReasoningStarted{MessageID: ident}
	case 2, 3:
		d.Data = event.ToolStarted{
			ToolCallID: ident, ToolName: "fs.read", Arguments: rapid.SampledFrom([]event.Object{"{}", `{"path":"a"}`}).Draw(t, "arguments"),
		}
	case 4:
		d.Data = event.NamespaceEntered{AgentID: "agent-" + ident, AgentName: "Agent", ParentToolCallID: ident}
		if len(d.Namespace) == 0 {
			d.Namespace = []string{"a"}
		}
	case 5:
		d.Data = PayloadOf(t, event.TypeWarning)
	case 6:
		d.Data = PayloadOf(t, event.TypeProviderMetadata)
	default:
		d.Data = PayloadOf(t, event.TypeUsageUpdated)
	}
	return d
}

// goOn adds to something that is open, or ends it.
func (r *run) goOn(item event.OpenItem) event.Data {
	t := r.t
	ends := rapid.Bool().Draw(t, "ends")
	switch {
	case item.Kind == event.ItemText && ends:
		return event.TextFinished{MessageID: item.ID}
	case item.Kind == event.ItemText:
		return event.TextDelta{MessageID: item.ID, Delta: text(200).Draw(t, "delta")}
	case item.Kind == event.ItemReasoning && ends:
		return event.ReasoningFinished{MessageID: item.ID}
	case item.Kind == event.ItemReasoning:
		return event.ReasoningDelta{MessageID: item.ID, Delta: text(200).Draw(t, "delta")}
	case item.Kind == event.ItemNamespace:
		return event.NamespaceExited{AgentID: item.Name, ParentToolCallID: item.ID, Outcome: rapid.SampledFrom([]event.NamespaceOutcome{
			event.NamespaceSuccess, event.NamespaceError, event.NamespaceCancelled, event.NamespaceInterrupted,
		}).Draw(t, "outcome")}
	case !ends:
		return event.ToolArgumentsDelta{
			ToolCallID: item.ID, Delta: rapid.SampledFrom([]string{`{"path":`, `"a"}`, `{}`}).Draw(t, "fragment"),
		}
	case rapid.Bool().Draw(t, "fails"):
		return event.ToolError{ToolCallID: item.ID, Code: "tool_unavailable", Message: "The tool is not there."}
	default:
		return event.ToolFinished{ToolCallID: item.ID, Result: value(2).Draw(t, "result")}
	}
}

// finish ends the run in one of the four ways.
func (r *run) finish() {
	t := r.t
	end := PayloadOf(t, rapid.SampledFrom([]event.Type{
		event.TypeRunFinished, event.TypeRunInterrupted, event.TypeRunCancelled, event.TypeRunError,
	}).Draw(t, "terminal"))
	if _, interrupted := end.(event.RunInterrupted); interrupted {
		end = r.interrupt()
	}
	for _, d := range r.machine.Closers(end) {
		if !r.try(d) {
			t.Fatalf("a closing event was refused: %+v", d)
		}
	}
	if !r.try(event.Draft{Data: end}) {
		t.Fatalf("the terminal was refused: %+v", end)
	}
}

// interrupt asks for a form, or for decisions on the open calls.
func (r *run) interrupt() event.Data {
	form := event.InterruptRequested{
		InterruptID: "interrupt-1", AgentID: "agent-1", InterruptType: event.InterruptFormInput, Prompt: "Which?",
		Fields: []event.FormField{{FieldName: "which", FieldType: "text"}},
	}
	approval := event.InterruptRequested{InterruptID: "interrupt-1", AgentID: "agent-1", InterruptType: event.InterruptToolApproval}
	for _, item := range r.machine.OpenItems() {
		if item.Kind == event.ItemTool && rapid.Bool().Draw(r.t, "approve") {
			approval.ToolApprovals = append(approval.ToolApprovals, event.ToolApproval{
				ToolCallID: item.ID, ToolName: item.Name, ToolArgs: "{}", AllowedDecisions: []event.Decision{event.DecisionApprove},
			})
		}
	}
	asked := approval
	if len(approval.ToolApprovals) == 0 || !r.try(event.Draft{Data: approval}) {
		asked = form
		if !r.try(event.Draft{Data: form}) {
			r.t.Fatal("an interrupt was refused")
		}
	}
	return event.RunInterrupted{InterruptID: asked.InterruptID, Reason: asked.InterruptType.Reason()}
}
