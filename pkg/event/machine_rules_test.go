package event_test

import (
	"errors"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
)

const (
	runID          = "run-1"
	conversationID = "conversation-1"
)

func moment() time.Time { return time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC) }

// Drafts that the tests of the machine are written in.
func root(d event.Data) event.Draft { return event.Draft{Data: d} }

func in(d event.Data, path ...string) event.Draft { return event.Draft{Namespace: path, Data: d} }

func started() event.Draft {
	return root(event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"})
}

func finished() event.Draft { return root(event.RunFinished{StopReason: "end_turn"}) }

func cancelled() event.Draft {
	return root(event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone})
}

func failed() event.Draft {
	return root(event.RunError{Code: "internal", Message: "Something failed.", SideEffectStatus: event.SideEffectsNone})
}

func textStarted(id string) event.Draft  { return root(event.TextStarted{MessageID: id}) }
func textDelta(id string) event.Draft    { return root(event.TextDelta{MessageID: id, Delta: "word"}) }
func textFinished(id string) event.Draft { return root(event.TextFinished{MessageID: id}) }

func reasoningStarted(id string) event.Draft  { return root(event.ReasoningStarted{MessageID: id}) }
func reasoningFinished(id string) event.Draft { return root(event.ReasoningFinished{MessageID: id}) }

func tool(id string) event.Draft {
	return root(event.ToolStarted{ToolCallID: id, ToolName: "fs.read", Arguments: `{"path":"a"}`})
}

func streamingTool(id string) event.Draft {
	return root(event.ToolStarted{ToolCallID: id, ToolName: "fs.read", Arguments: event.EmptyObject})
}

func arguments(id, fragment string) event.Draft {
	return root(event.ToolArgumentsDelta{ToolCallID: id, Delta: fragment})
}

func toolFinished(id string) event.Draft {
	return root(event.ToolFinished{ToolCallID: id, Result: `"done"`})
}

func toolError(id string) event.Draft {
	return root(event.ToolError{ToolCallID: id, Code: "tool_unavailable", Message: "The tool is not there."})
}

func entered(parent string, path ...string) event.Draft {
	return in(event.NamespaceEntered{AgentID: "helper", AgentName: "Helper", ParentToolCallID: parent}, path...)
}

func exited(parent string, outcome event.NamespaceOutcome, path ...string) event.Draft {
	return in(event.NamespaceExited{AgentID: "helper", ParentToolCallID: parent, Outcome: outcome}, path...)
}

func approval(ids ...string) event.Draft {
	d := event.InterruptRequested{InterruptID: "interrupt-1", InterruptType: event.InterruptToolApproval, AgentID: "agent-1"}
	for _, id := range ids {
		d.ToolApprovals = append(d.ToolApprovals, event.ToolApproval{
			ToolCallID: id, ToolName: "fs.read", ToolArgs: `{"path":"a"}`,
			AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject},
		})
	}
	return root(d)
}

func form() event.Draft {
	return root(event.InterruptRequested{
		InterruptID: "interrupt-1", InterruptType: event.InterruptFormInput, AgentID: "agent-1", Prompt: "Which?",
		Fields: []event.FormField{{FieldName: "which", FieldType: "text", Required: true}},
	})
}

func interrupted(reason event.InterruptReason) event.Draft {
	return root(event.RunInterrupted{InterruptID: "interrupt-1", Reason: reason})
}

func warning(path ...string) event.Draft {
	return in(event.Warning{Code: "slow", Message: "This takes a while."}, path...)
}

// feed accepts drafts one after another and returns the first error.
func feed(m *event.Machine, drafts ...event.Draft) error {
	for _, d := range drafts {
		if err := m.Accept(m.Stamp(d, moment())); err != nil {
			return err
		}
	}
	return nil
}

func newMachine(carried ...event.Carried) *event.Machine {
	return event.NewMachine(runID, conversationID, event.Bounds{}, carried...)
}

// breaks is a run that is fine up to its last event, which breaks the rule.
type breaks struct {
	rule    int
	reason  string
	carried []event.Carried
	run     []event.Draft
}

func (b breaks) test(t *testing.T) {
	t.Helper()
	m := newMachine(b.carried...)
	last := len(b.run) - 1
	if err := feed(m, b.run[:last]...); err != nil {
		t.Fatalf("the events before the last are refused: %v", err)
	}
	e := m.Stamp(b.run[last], moment())
	checked := m.Check(e)
	err := m.Accept(e)
	v, ok := errors.AsType[*event.ViolationError](err)
	if !ok || v.Rule != b.rule || v.Reason != b.reason || v.Sequence != e.Sequence {
		t.Fatalf("got %v, want rule %d: %s", err, b.rule, b.reason)
	}
	if checked == nil || checked.Error() != err.Error() {
		t.Errorf("Check says %v, Accept says %v", checked, err)
	}
	next := m.Stamp(started(), moment())
	if m.Next() > 0 {
		next = m.Stamp(failed(), moment())
	}
	if m.Accept(next) == nil || m.Check(next) == nil {
		t.Error("the machine goes on after a violation")
	}
	if m.Next() != e.Sequence {
		t.Errorf("the refused event was counted: next is %d", m.Next())
	}
}

type draftList = []event.Draft

func TestRule1_StartedFirstAndOnceOneTerminalNothingAfter(t *testing.T) {
	t.Parallel()
	const first, after = "the first event is not run.started", "an event after the terminal"
	for name, b := range map[string]breaks{
		"text first":              {rule: 1, reason: first, run: draftList{textStarted("m")}},
		"error first":             {rule: 1, reason: first, run: draftList{failed()}},
		"started twice":           {rule: 1, reason: "run.started comes a second time", run: draftList{started(), started()}},
		"warning after finished":  {rule: 1, reason: after, run: draftList{started(), finished(), warning()}},
		"finished twice":          {rule: 1, reason: after, run: draftList{started(), finished(), finished()}},
		"finished after an error": {rule: 1, reason: after, run: draftList{started(), failed(), finished()}},
		"finished after a cancel": {rule: 1, reason: after, run: draftList{started(), cancelled(), finished()}},
		"started after finished":  {rule: 1, reason: after, run: draftList{started(), finished(), started()}},
		"text end after an error": {rule: 1, reason: after, run: draftList{started(), textStarted("m"), failed(), textFinished("m")}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	for name, change := range map[string]func(*event.Event){
		"another run":          func(e *event.Event) { e.RunID = "run-2" },
		"another conversation": func(e *event.Event) { e.ConversationID = "conversation-2" },
	} {
		m := newMachine()
		if err := feed(m, started()); err != nil {
			t.Fatal(err)
		}
		e := m.Stamp(warning(), moment())
		change(&e)
		if v, ok := errors.AsType[*event.ViolationError](m.Accept(e)); !ok || v.Rule != 1 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestRule2_SequenceRisesByOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sequence uint64
		reason   string
	}{
		"repeat":    {1, "a sequence that was there already"},
		"step back": {0, "a sequence that was there already"},
		"gap":       {3, "a gap in the sequence"},
		"far ahead": {event.MaxInteger, "a gap in the sequence"},
	} {
		m := newMachine()
		if err := feed(m, started(), warning()); err != nil {
			t.Fatal(err)
		}
		e := m.Stamp(warning(), moment())
		e.Sequence = c.sequence
		if v, ok := errors.AsType[*event.ViolationError](m.Accept(e)); !ok || v.Rule != 2 || v.Reason != c.reason {
			t.Errorf("%s: %v", name, v)
		}
	}
	e := newMachine().Stamp(started(), moment())
	e.Sequence = 1
	if v, ok := errors.AsType[*event.ViolationError](newMachine().Accept(e)); !ok || v.Rule != 2 {
		t.Errorf("a run that begins at 1: %v", v)
	}
}

func TestRule3_TextAndReasoningOpenOnceAndNeverReopen(t *testing.T) {
	t.Parallel()
	const notOpen, open, closed = "an id that is not open", "an id that is open opens again", "an id that was closed opens again"
	for name, b := range map[string]breaks{
		"delta before start":         {rule: 3, reason: notOpen, run: draftList{started(), textDelta("m")}},
		"finish before start":        {rule: 3, reason: notOpen, run: draftList{started(), textFinished("m")}},
		"delta of another id":        {rule: 3, reason: notOpen, run: draftList{started(), textStarted("m"), textDelta("n")}},
		"delta after finish":         {rule: 3, reason: notOpen, run: draftList{started(), textStarted("m"), textFinished("m"), textDelta("m")}},
		"finished twice":             {rule: 3, reason: notOpen, run: draftList{started(), textStarted("m"), textFinished("m"), textFinished("m")}},
		"started twice":              {rule: 3, reason: open, run: draftList{started(), textStarted("m"), textStarted("m")}},
		"reopened":                   {rule: 3, reason: closed, run: draftList{started(), textStarted("m"), textFinished("m"), textStarted("m")}},
		"reasoning as text":          {rule: 3, reason: notOpen, run: draftList{started(), reasoningStarted("m"), textDelta("m")}},
		"reasoning finished twice":   {rule: 3, reason: notOpen, run: draftList{started(), reasoningStarted("m"), reasoningFinished("m"), reasoningFinished("m")}},
		"reasoning reopened":         {rule: 3, reason: closed, run: draftList{started(), reasoningStarted("m"), reasoningFinished("m"), reasoningStarted("m")}},
		"reasoning delta, not begun": {rule: 3, reason: notOpen, run: draftList{started(), root(event.ReasoningDelta{MessageID: "m", Delta: "w"})}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	if err := feed(newMachine(), started(), textStarted("m"), reasoningStarted("m"), textDelta("m"), reasoningFinished("m"), textFinished("m"), finished()); err != nil {
		t.Errorf("text and reasoning under one id: %v", err)
	}
}

func TestRule4_AToolOpensOnceAndEndsOnce(t *testing.T) {
	t.Parallel()
	const notOpen = "an id that is not open"
	const notJSON, whole = "the joined arguments are not one acceptable JSON object", "arguments stream after they were given whole"
	for name, b := range map[string]breaks{
		"result without a call":       {rule: 4, reason: notOpen, run: draftList{started(), toolFinished("c")}},
		"error without a call":        {rule: 4, reason: notOpen, run: draftList{started(), toolError("c")}},
		"arguments without a call":    {rule: 4, reason: notOpen, run: draftList{started(), arguments("c", "{}")}},
		"started twice":               {rule: 4, reason: "an id that is open opens again", run: draftList{started(), tool("c"), tool("c")}},
		"reopened":                    {rule: 4, reason: "an id that was closed opens again", run: draftList{started(), tool("c"), toolFinished("c"), tool("c")}},
		"finished twice":              {rule: 4, reason: notOpen, run: draftList{started(), tool("c"), toolFinished("c"), toolFinished("c")}},
		"error after the result":      {rule: 4, reason: notOpen, run: draftList{started(), tool("c"), toolFinished("c"), toolError("c")}},
		"result after the error":      {rule: 4, reason: notOpen, run: draftList{started(), tool("c"), toolError("c"), toolFinished("c")}},
		"arguments after the end":     {rule: 4, reason: notOpen, run: draftList{started(), streamingTool("c"), toolFinished("c"), arguments("c", "{}")}},
		"arguments after whole ones":  {rule: 4, reason: whole, run: draftList{started(), tool("c"), arguments("c", "{}")}},
		"arguments of a carried call": {rule: 4, reason: whole, carried: []event.Carried{{ToolCallID: "c"}}, run: draftList{started(), arguments("c", "{}")}},
		"half an object":              {rule: 4, reason: notJSON, run: draftList{started(), streamingTool("c"), arguments("c", `{"a":`), toolFinished("c")}},
		"two objects":                 {rule: 4, reason: notJSON, run: draftList{started(), streamingTool("c"), arguments("c", `{}`), arguments("c", `{}`), toolFinished("c")}},
		"an array":                    {rule: 4, reason: notJSON, run: draftList{started(), streamingTool("c"), arguments("c", `[]`), toolFinished("c")}},
		"a key twice":                 {rule: 4, reason: notJSON, run: draftList{started(), streamingTool("c"), arguments("c", `{"a":1,`), arguments("c", `"a":2}`), toolFinished("c")}},
		"a key in two cases":          {rule: 4, reason: notJSON, run: draftList{started(), streamingTool("c"), arguments("c", `{"a":1,"A":2}`), toolFinished("c")}},
		"half a surrogate pair":       {rule: 4, reason: notJSON, run: draftList{started(), streamingTool("c"), arguments("c", `{"a":"\ud800"}`), toolFinished("c")}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	for name, run := range map[string]draftList{
		"streamed arguments":          {started(), streamingTool("c"), arguments("c", `{"a":"\ud83d`), arguments("c", `\ude00"}`), toolFinished("c"), finished()},
		"no arguments":                {started(), streamingTool("c"), toolFinished("c"), finished()},
		"broken arguments, not made":  {started(), streamingTool("c"), arguments("c", `{"a":`), toolError("c"), finished()},
		"calls side by side":          {started(), tool("c"), streamingTool("d"), toolFinished("c"), arguments("d", "{}"), toolError("d"), finished()},
		"a tool while text is open":   {started(), textStarted("m"), tool("c"), textDelta("m"), toolFinished("c"), textFinished("m"), finished()},
		"the id of a text for a tool": {started(), textStarted("x"), textFinished("x"), tool("x"), toolFinished("x"), finished()},
	} {
		if err := feed(newMachine(), run...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRule5_AllIsClosedBeforeFinished(t *testing.T) {
	t.Parallel()
	const open, space = "text, reasoning or a tool call is open at run.finished", "a namespace is open at the end of the run"
	const waits = "something that does not wait is open at run.interrupted"
	for name, b := range map[string]breaks{
		"text":               {rule: 5, reason: open, run: draftList{started(), textStarted("m"), finished()}},
		"reasoning":          {rule: 5, reason: open, run: draftList{started(), reasoningStarted("m"), finished()}},
		"tool":               {rule: 5, reason: open, run: draftList{started(), tool("c"), finished()}},
		"namespace":          {rule: 5, reason: open, run: draftList{started(), tool("c"), entered("c", "a"), finished()}},
		"carried call":       {rule: 5, reason: open, carried: []event.Carried{{ToolCallID: "c"}}, run: draftList{started(), finished()}},
		"text, interrupt":    {rule: 5, reason: waits, run: draftList{started(), textStarted("m"), form(), interrupted(event.InterruptedForHumanInput)}},
		"tool, interrupt":    {rule: 5, reason: waits, run: draftList{started(), tool("c"), tool("d"), approval("c"), interrupted(event.InterruptedForToolApproval)}},
		"tool, form":         {rule: 5, reason: waits, run: draftList{started(), tool("c"), form(), interrupted(event.InterruptedForHumanInput)}},
		"space, interrupted": {rule: 5, reason: space, run: draftList{started(), tool("c"), entered("c", "a"), form(), interrupted(event.InterruptedForHumanInput)}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	for name, end := range map[string]event.Draft{"error": failed(), "cancelled": cancelled()} {
		if err := feed(newMachine(), started(), textStarted("m"), tool("c"), entered("c", "a"), end); err != nil {
			t.Errorf("%s with things open: %v", name, err)
		}
	}
}

func TestRule6_AnInterruptIsUniqueAndOnlyClosingFollows(t *testing.T) {
	t.Parallel()
	const after = "only closing events and the end of the run may follow interrupt.requested"
	human, tools := event.InterruptedForHumanInput, event.InterruptedForToolApproval
	other := root(event.RunInterrupted{InterruptID: "interrupt-2", Reason: human})
	wrongTool := root(event.InterruptRequested{
		InterruptID: "interrupt-1", InterruptType: event.InterruptToolApproval, AgentID: "agent-1",
		ToolApprovals: []event.ToolApproval{{
			ToolCallID: "c", ToolName: "fs.delete", ToolArgs: "{}", AllowedDecisions: []event.Decision{event.DecisionApprove},
		}},
	})
	for name, b := range map[string]breaks{
		"twice":                 {rule: 6, reason: after, run: draftList{started(), form(), form()}},
		"text after it":         {rule: 6, reason: after, run: draftList{started(), form(), textStarted("m")}},
		"delta after it":        {rule: 6, reason: after, run: draftList{started(), textStarted("m"), form(), textDelta("m")}},
		"tool after it":         {rule: 6, reason: after, run: draftList{started(), form(), tool("c")}},
		"arguments after it":    {rule: 6, reason: after, run: draftList{started(), streamingTool("c"), arguments("c", `{"path":"a"}`), approval("c"), arguments("c", "{}")}},
		"warning after it":      {rule: 6, reason: after, run: draftList{started(), form(), warning()}},
		"namespace after it":    {rule: 6, reason: after, run: draftList{started(), tool("c"), form(), entered("c", "a")}},
		"finished after it":     {rule: 6, reason: after, run: draftList{started(), form(), finished()}},
		"interrupted, not aked": {rule: 6, reason: "run.interrupted without interrupt.requested", run: draftList{started(), interrupted(human)}},
		"another interrupt":     {rule: 6, reason: "run.interrupted names another interrupt", run: draftList{started(), form(), other}},
		"wrong reason":          {rule: 6, reason: "the reason is not that of the interrupt", run: draftList{started(), form(), interrupted(tools)}},
		"unknown call":          {rule: 6, reason: "an interrupt names a tool call that is not open", run: draftList{started(), approval("c")}},
		"ended call":            {rule: 6, reason: "an interrupt names a tool call that is not open", run: draftList{started(), tool("c"), toolFinished("c"), approval("c")}},
		"another tool":          {rule: 6, reason: "an interrupt names another tool than the call", run: draftList{started(), tool("c"), wrongTool}},
		"other arguments":       {rule: 6, reason: "an interrupt shows other arguments than those of the call", run: draftList{started(), root(event.ToolStarted{ToolCallID: "c", ToolName: "fs.read", Arguments: `{"path":"b"}`}), approval("c")}},
		"no arguments":          {rule: 6, reason: "an interrupt shows other arguments than those of the call", run: draftList{started(), streamingTool("c"), approval("c")}},
		"other streamed ones":   {rule: 6, reason: "an interrupt shows other arguments than those of the call", run: draftList{started(), streamingTool("c"), arguments("c", `{"path":"a","all":true}`), approval("c")}},
		"call ended since":      {rule: 6, reason: "a tool call that waits for a decision has ended", run: draftList{started(), tool("c"), approval("c"), toolError("c"), interrupted(tools)}},
		"half the arguments":    {rule: 4, reason: "the joined arguments are not one acceptable JSON object", run: draftList{started(), streamingTool("c"), arguments("c", "{"), approval("c")}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	for name, run := range map[string]draftList{
		"form":                 {started(), form(), interrupted(human)},
		"approval":             {started(), tool("c"), approval("c"), interrupted(tools)},
		"two approvals":        {started(), tool("c"), streamingTool("d"), arguments("d", `{ "path" :`), arguments("d", `"\u0061"}`), approval("c", "d"), interrupted(tools)},
		"closing between":      {started(), textStarted("m"), reasoningStarted("r"), tool("c"), tool("d"), approval("c"), textFinished("m"), reasoningFinished("r"), toolFinished("d"), interrupted(tools)},
		"the commit failed":    {started(), tool("c"), approval("c"), failed()},
		"a cancel won":         {started(), tool("c"), approval("c"), toolError("c"), cancelled()},
		"from inside a helper": {started(), tool("c"), entered("c", "a"), in(form().Data, "a"), exited("c", event.NamespaceInterrupted, "a"), interrupted(human)},
	} {
		if err := feed(newMachine(), run...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
