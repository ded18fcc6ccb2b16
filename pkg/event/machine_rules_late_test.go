package event_test

import (
	"errors"
	"slices"
	"testing"

	"cofferdam.dev/pkg/event"
)

func TestRule7_NamespacesNestAndBalance(t *testing.T) {
	t.Parallel()
	ok := event.NamespaceSuccess
	const closed, occupied = "an event in a namespace that is not open", "a namespace is exited with something open in it"
	const elsewhere = "an id goes on in another namespace than it began in"
	textIn := in(event.TextStarted{MessageID: "m"}, "a")
	otherAgent := in(event.NamespaceExited{AgentID: "other", ParentToolCallID: "c", Outcome: ok}, "a")
	for name, b := range map[string]breaks{
		"event in a namespace never entered": {rule: 7, reason: closed, run: draftList{started(), warning("a")}},
		"event in an exited namespace":       {rule: 7, reason: closed, run: draftList{started(), tool("c"), entered("c", "a"), exited("c", ok, "a"), warning("a")}},
		"event below an open namespace":      {rule: 7, reason: closed, run: draftList{started(), tool("c"), entered("c", "a"), warning("a", "b")}},
		"terminal in a namespace":            {rule: 7, reason: "an event of the run itself stands in a namespace", run: draftList{started(), tool("c"), entered("c", "a"), in(failed().Data, "a")}},
		"start in a namespace":               {rule: 7, reason: "an event of the run itself stands in a namespace", run: draftList{in(started().Data, "a")}},
		"root exited":                        {rule: 7, reason: "the root is never exited", run: draftList{started(), tool("c"), exited("c", ok)}},
		"root entered":                       {rule: 7, reason: "the root is never entered", run: draftList{started(), tool("c"), entered("c")}},
		"entered twice":                      {rule: 7, reason: "a namespace that is open is entered again", run: draftList{started(), tool("c"), entered("c", "a"), entered("c", "a")}},
		"entered below a closed one":         {rule: 7, reason: "a namespace is entered below one that is not open", run: draftList{started(), tool("c"), entered("c", "a", "b")}},
		"entered without a call":             {rule: 7, reason: "a namespace is entered for a tool call that is not open", run: draftList{started(), entered("c", "a")}},
		"entered for a call that ended":      {rule: 7, reason: "a namespace is entered for a tool call that is not open", run: draftList{started(), tool("c"), toolFinished("c"), entered("c", "a")}},
		"entered for a call elsewhere":       {rule: 7, reason: "a namespace is entered for a tool call of another namespace", run: draftList{started(), tool("c"), entered("c", "a"), entered("c", "a", "b")}},
		"exited, never entered":              {rule: 7, reason: "a namespace that is not open is exited", run: draftList{started(), exited("c", ok, "a")}},
		"exited twice":                       {rule: 7, reason: "a namespace that is not open is exited", run: draftList{started(), tool("c"), entered("c", "a"), exited("c", ok, "a"), exited("c", ok, "a")}},
		"exited by another agent":            {rule: 7, reason: "a namespace is exited by another agent or tool call than entered it", run: draftList{started(), tool("c"), entered("c", "a"), otherAgent}},
		"exited for another call":            {rule: 7, reason: "a namespace is exited by another agent or tool call than entered it", run: draftList{started(), tool("c"), entered("c", "a"), exited("d", ok, "a")}},
		"exited before one below it":         {rule: 7, reason: occupied, run: draftList{started(), tool("c"), entered("c", "a"), in(tool("d").Data, "a"), entered("d", "a", "b"), exited("c", ok, "a")}},
		"exited by a carried call":           {rule: 7, reason: occupied, carried: []event.Carried{{ToolCallID: "c"}}, run: draftList{started(), entered("c", "a"), entered("c", "a", "b"), exited("c", ok, "a")}},
		"exited with text open":              {rule: 7, reason: occupied, run: draftList{started(), tool("c"), entered("c", "a"), textIn, exited("c", ok, "a")}},
		"text goes on in the root":           {rule: 7, reason: elsewhere, run: draftList{started(), tool("c"), entered("c", "a"), textIn, textDelta("m")}},
		"tool ends in another namespace":     {rule: 7, reason: elsewhere, run: draftList{started(), tool("c"), entered("c", "a"), tool("d"), in(toolFinished("d").Data, "a")}},
		"call ends before its namespace":     {rule: 7, reason: "a tool call ends before the namespace that it opened", run: draftList{started(), tool("c"), entered("c", "a"), toolFinished("c")}},
		"approval of a call at work":         {rule: 7, reason: "an interrupt names a tool call that has an open namespace", run: draftList{started(), tool("c"), entered("c", "a"), approval("c")}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	for name, run := range map[string]draftList{
		"nested":               {started(), tool("c"), entered("c", "a"), in(tool("d").Data, "a"), entered("d", "a", "b"), warning("a", "b"), exited("d", ok, "a", "b"), in(toolFinished("d").Data, "a"), exited("c", ok, "a"), toolFinished("c"), finished()},
		"side by side":         {started(), tool("c"), tool("d"), entered("c", "a"), entered("d", "b"), warning("a"), warning("b"), exited("c", ok, "a"), toolFinished("c"), exited("d", event.NamespaceError, "b"), toolError("d"), finished()},
		"two for one call":     {started(), tool("c"), entered("c", "a"), entered("c", "b"), exited("c", ok, "a"), exited("c", ok, "b"), toolFinished("c"), finished()},
		"the same path again":  {started(), tool("c"), entered("c", "a"), exited("c", ok, "a"), toolFinished("c"), tool("d"), entered("d", "a"), exited("d", ok, "a"), toolFinished("d"), finished()},
		"root while one is in": {started(), tool("c"), entered("c", "a"), textStarted("m"), textIn2(), textFinished("m"), in(event.TextFinished{MessageID: "n"}, "a"), exited("c", ok, "a"), toolFinished("c"), finished()},
	} {
		if err := feed(newMachine(), run...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func textIn2() event.Draft { return in(event.TextStarted{MessageID: "n"}, "a") }

func TestRule8_AStreamWithoutATerminalIsNoSuccess(t *testing.T) {
	t.Parallel()
	m := newMachine()
	if err := feed(m, started(), textStarted("m"), textDelta("m"), textFinished("m")); err != nil {
		t.Fatal(err)
	}
	if e, ended := m.Terminal(); ended {
		t.Fatalf("a run that was cut off ended by %s", e.Type())
	}
	lost := event.RunError{Code: "sandbox_evicted", Message: "The sandbox went away.", SideEffectStatus: event.SideEffectsPossible}
	events, err := m.Close(moment(), event.RunStarted{}, lost)
	if err != nil {
		t.Fatal(err)
	}
	e, ended := m.Terminal()
	if !ended || e.Type() != event.TypeRunError || e.Sequence != 4 || len(events) != 1 {
		t.Errorf("closed by %+v with %d events", e, len(events))
	}
}

// Until the commit is known to have succeeded, the run can still end otherwise.
func TestRule9_ATerminalCanBeCheckedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	m := newMachine()
	if err := feed(m, started(), textStarted("m"), textDelta("m"), textFinished("m")); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(m.Stamp(finished(), moment())); err != nil {
		t.Fatal(err)
	}
	if _, ended := m.Terminal(); ended {
		t.Fatal("Check ended the run")
	}
	uncertain := event.RunError{Code: "thread_durability_uncertain", Message: "It is not known whether this turn was saved.", SideEffectStatus: event.SideEffectsKnown}
	if err := feed(m, root(uncertain)); err != nil {
		t.Errorf("after a failed commit: %v", err)
	}
}

func TestRule10_ADecisionNeverMakesUpAResult(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]breaks{
		"result while it waits":   {rule: 10, reason: "a tool call finishes while it waits for a decision", run: draftList{started(), tool("c"), approval("c"), toolFinished("c")}},
		"result after a reject":   {rule: 10, reason: "a tool call finishes although it was rejected", carried: []event.Carried{{ToolCallID: "c", Decision: event.DecisionReject}}, run: draftList{started(), toolFinished("c")}},
		"result of the other one": {rule: 4, reason: "an id that is not open", carried: []event.Carried{{ToolCallID: "c", Decision: event.DecisionApprove}}, run: draftList{started(), toolFinished("d")}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}
	for decision, end := range map[event.Decision]event.Draft{
		event.DecisionReject: toolError("c"), event.DecisionApprove: toolFinished("c"), event.DecisionEdit: toolFinished("c"),
	} {
		if err := feed(newMachine(event.Carried{ToolCallID: "c", Decision: decision}), started(), end, finished()); err != nil {
			t.Errorf("%s: %v", decision, err)
		}
	}
	for _, d := range newMachine(event.Carried{ToolCallID: "c"}).Closers(finished().Data) {
		if d.Data.Type() == event.TypeToolFinished {
			t.Error("a result was made up to close a call")
		}
	}
}

func TestRule11_AResumeIsANewRunWithTheCallsCarriedOver(t *testing.T) {
	t.Parallel()
	carried := []event.Carried{{ToolCallID: "c", Decision: event.DecisionApprove}}
	for name, b := range map[string]breaks{
		"asked about again":     {rule: 6, reason: "an interrupt names a tool call that was decided before", carried: carried, run: draftList{started(), approval("c")}},
		"started a second time": {rule: 4, reason: "an id that is open opens again", carried: carried, run: draftList{started(), tool("c")}},
		"not ended":             {rule: 5, reason: "text, reasoning or a tool call is open at run.finished", carried: carried, run: draftList{started(), finished()}},
		"ended before started":  {rule: 1, reason: "the first event is not run.started", carried: carried, run: draftList{toolFinished("c")}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); b.test(t) })
	}

	// An approval inside a subagent: the call waits, and so does the call that
	// delegates. The resumed run enters the namespace again for it.
	m := newMachine()
	path := []string{"a"}
	asked := approval("inner")
	asked.Namespace = path
	err := feed(m, started(), tool("outer"), entered("outer", "a"), in(tool("inner").Data, "a"), asked,
		exited("outer", event.NamespaceInterrupted, "a"), interrupted(event.InterruptedForToolApproval))
	if err != nil {
		t.Fatal(err)
	}
	if asked, ok := m.Interrupt(); !ok || asked.InterruptID != "interrupt-1" {
		t.Errorf("the interrupt is %+v", asked)
	}
	pending := m.Pending()
	if want := []event.Carried{{ToolCallID: "outer"}, {ToolCallID: "inner"}}; !slices.Equal(pending, want) {
		t.Fatalf("pending %+v, want %+v", pending, want)
	}
	pending[1].Decision = event.DecisionReject
	resumed := event.NewMachine("run-2", conversationID, event.Bounds{}, pending...)
	if asked, ok := resumed.Interrupt(); ok || len(resumed.Pending()) > 0 {
		t.Errorf("before it was interrupted: %+v, %+v", asked, resumed.Pending())
	}
	err = feed(resumed, started(), entered("outer", "a"), in(toolError("inner").Data, "a"), exited("outer", event.NamespaceSuccess, "a"), toolFinished("outer"), finished())
	if err != nil {
		t.Fatal(err)
	}
	if len(resumed.Pending()) != 0 {
		t.Errorf("a finished run has %+v pending", resumed.Pending())
	}
}

func TestAnEmptyDeltaIsDroppedAndChangesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine()
	if err := feed(m, started(), textStarted("m"), streamingTool("c"), reasoningStarted("r")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []event.Data{
		event.TextDelta{MessageID: "m"}, event.ReasoningDelta{MessageID: "r"}, event.ToolArgumentsDelta{ToolCallID: "c"},
	} {
		if !event.IsEmptyDelta(d) {
			t.Errorf("%s: not seen as empty", d.Type())
		}
		e := m.Stamp(root(d), moment())
		if err := m.Check(e); !errors.Is(err, event.ErrEmptyDelta) {
			t.Errorf("%s: %v", d.Type(), err)
		}
		if err := m.Accept(e); !errors.Is(err, event.ErrEmptyDelta) {
			t.Errorf("%s: %v", d.Type(), err)
		}
		if err := event.Validate(e, event.Bounds{}); !errors.Is(err, event.ErrEmptyDelta) {
			t.Errorf("%s: %v", d.Type(), err)
		}
	}
	if m.Next() != 4 {
		t.Errorf("an empty delta took a sequence: next is %d", m.Next())
	}
	if err := feed(m, textDelta("m")); err != nil {
		t.Errorf("the run does not go on: %v", err)
	}
}
