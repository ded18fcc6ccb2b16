package event_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

// atBound feeds what fits exactly, then what is one too many.
func atBound(t *testing.T, name string, b event.Bounds, fits []event.Draft, tooMuch event.Draft) {
	t.Helper()
	m := event.NewMachine(runID, conversationID, b)
	if err := feed(m, fits...); err != nil {
		t.Errorf("%s: what fits is refused: %v", name, err)
		return
	}
	v, ok := errors.AsType[*event.ViolationError](feed(m, tooMuch))
	if !ok || v.Rule != 0 {
		t.Errorf("%s: one too many got %v, want a bound", name, v)
	}
}

func TestBoundsOfARun(t *testing.T) {
	t.Parallel()
	many := func(n int, one func(id string) event.Draft) draftList {
		run := draftList{started()}
		for i := range n {
			run = append(run, one(fmt.Sprint("id", i)))
		}
		return run
	}
	var low event.Bounds
	atBound(t, "open texts", low, many(event.MaxOpenTexts, textStarted), textStarted("m"))
	atBound(t, "open reasoning", low, many(event.MaxOpenReasonings, reasoningStarted), reasoningStarted("m"))
	atBound(t, "open tools", low, many(event.MaxOpenTools, tool), tool("c"))
	atBound(t, "open tools of a profile", event.Bounds{OpenTools: 2}, many(2, tool), tool("c"))
	space := func(id string) event.Draft { return entered("c", id) }
	spaces := append(draftList{started(), tool("c")}, many(event.MaxOpenNamespaces, space)[1:]...)
	atBound(t, "open namespaces", low, spaces, space("one-more"))

	nest, path := draftList{started()}, []string(nil)
	for i := range event.MaxNamespaceDepth + 1 {
		id := fmt.Sprint("c", i)
		nest = append(nest, in(tool(id).Data, path...))
		path = append(path[:i:i], fmt.Sprint("a", i))
		nest = append(nest, entered(id, path...))
	}
	atBound(t, "depth of namespaces", low, nest[:len(nest)-1], nest[len(nest)-1])

	chunk := strings.Repeat(" ", event.MaxDeltaBytes)
	args := draftList{started(), streamingTool("c"), arguments("c", chunk), arguments("c", chunk), arguments("c", chunk), arguments("c", chunk[2:]), arguments("c", "{}")}
	atBound(t, "joined arguments", low, args, arguments("c", " "))
	deep := func(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }
	atBound(t, "depth of joined arguments", low,
		draftList{started(), streamingTool("c"), arguments("c", deep(32)), toolFinished("c"), streamingTool("d"), arguments("d", deep(33)), toolError("d")},
		in(event.ToolStarted{ToolCallID: "e", ToolName: "fs.read", Arguments: event.Object(deep(33))}))
	m := newMachine()
	err := feed(m, started(), streamingTool("c"), arguments("c", deep(33)), toolFinished("c"))
	if v, ok := errors.AsType[*event.ViolationError](err); !ok || v.Rule != 4 {
		t.Errorf("joined arguments of depth 33: %v", err)
	}
}

// The last places of a run belong to what closes it: whatever is open when the
// budget is used up can still be closed, and nothing else can come.
func TestBudgetOfARunLeavesRoomToEndIt(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]struct {
		events uint64
		bytes  int
		bounds event.Bounds
	}{
		"events": {40, event.MaxRunBytes, event.Bounds{RunEvents: 40}},
		"bytes":  {event.MaxRunEvents, 160 << 10, event.Bounds{RunBytes: 160 << 10}},
	} {
		m := event.NewMachine(strings.Repeat("r", event.MaxIDLength), conversationID, most.bounds)
		path := make([]string, 0, event.MaxNamespaceDepth)
		drafts := draftList{started(), textStarted("m"), reasoningStarted("r")}
		for i := range event.MaxNamespaceDepth {
			id := strings.Repeat(fmt.Sprint(i), event.MaxIDLength)
			drafts = append(drafts, in(tool(id).Data, path...))
			path = append(path, id)
			drafts = append(drafts, entered(id, path...))
		}
		if err := feed(m, drafts...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var err error
		for err == nil {
			err = feed(m, textDelta("m"))
		}
		if v, ok := errors.AsType[*event.ViolationError](err); !ok || v.Rule != 0 || !strings.Contains(v.Reason, name) {
			t.Fatalf("%s: the run ended by %v", name, err)
		}
		before := m.Bytes()
		worst := event.RunError{
			Code: strings.Repeat("c", event.MaxIDLength), Message: strings.Repeat("\n", event.MaxMessageBytes), SideEffectStatus: event.SideEffectsKnown,
		}
		events, err := m.Close(moment(), event.RunStarted{}, worst)
		if err != nil {
			t.Fatalf("%s: the run cannot be closed: %v", name, err)
		}
		if len(events) != 2+2*event.MaxNamespaceDepth+1 {
			t.Errorf("%s: closed by %d events", name, len(events))
		}
		if m.Next() > most.events || m.Bytes() > most.bytes || m.Bytes() <= before {
			t.Errorf("%s: the closed run has %d events and %d bytes", name, m.Next(), m.Bytes())
		}
	}
}

func TestBudgetCountsWhatEncodeGives(t *testing.T) {
	t.Parallel()
	m, total := newMachine(), 0
	for _, d := range []event.Draft{started(), textStarted("m"), textDelta("m"), tool("c"), toolFinished("c"), textFinished("m"), finished()} {
		e := m.Stamp(d, moment())
		encoded, err := event.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		total += len(encoded)
		if err := m.Accept(e); err != nil {
			t.Fatal(err)
		}
	}
	if m.Bytes() != total {
		t.Errorf("%d bytes counted, %d encoded", m.Bytes(), total)
	}
}

func TestAProfileOnlyLowers(t *testing.T) {
	t.Parallel()
	d := event.DefaultBounds()
	if got := d.Lower(event.Bounds{}); got != d {
		t.Errorf("an empty profile changes the bounds: %+v", got)
	}
	raised := event.Bounds{
		EventBytes: 1 << 30, DeltaBytes: 1 << 30, IDLength: 1 << 30, ArgumentsBytes: 1 << 30, ArgumentsDepth: 1 << 30, ResultBytes: 1 << 30,
		RunEvents: 1 << 30, RunBytes: 1 << 30, OpenTools: 1 << 30, OpenTexts: 1 << 30, OpenReasonings: 1 << 30,
		OpenNamespaces: 1 << 30, NamespaceDepth: 1 << 30, DetailsBytes: 1 << 30, DetailsKeys: 1 << 30,
	}
	if got := d.Lower(raised); got != d {
		t.Errorf("a profile raised a bound: %+v", got)
	}
	ones := event.Bounds{
		EventBytes: 1, DeltaBytes: 1, IDLength: 1, ArgumentsBytes: 1, ArgumentsDepth: 1, ResultBytes: 1,
		RunEvents: 1, RunBytes: 1, OpenTools: 1, OpenTexts: 1, OpenReasonings: 1,
		OpenNamespaces: 1, NamespaceDepth: 1, DetailsBytes: 1, DetailsKeys: 1,
	}
	if got := d.Lower(ones); got != ones {
		t.Errorf("a bound was not lowered: %+v", got)
	}
	if v, ok := errors.AsType[*event.ViolationError](event.Validate(newMachine().Stamp(textDelta("m"), moment()), event.Bounds{DeltaBytes: 3})); !ok || v.Field != "data.delta" {
		t.Errorf("a lowered bound is not kept: %v", v)
	}
}
