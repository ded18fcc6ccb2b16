package event_test

import (
	"errors"
	"iter"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
)

func busyRun() []event.Draft {
	return []event.Draft{
		started(), textStarted("m"), tool("c"), entered("c", "a"), in(event.ReasoningStarted{MessageID: "r"}, "a"), in(tool("d").Data, "a"), streamingTool("e"), arguments("e", "{"),
	}
}

func TestCloseClosesInTheOppositeOrder(t *testing.T) {
	t.Parallel()
	cancel := event.RunCancelled{Reason: event.CancelledByDeadline, SideEffectStatus: event.SideEffectsPossible}
	lostTool := func(id string) event.ToolError {
		return event.ToolError{ToolCallID: id, Code: "cancelled", Message: "The run was cancelled before this tool call ended."}
	}
	m := newMachine()
	if err := feed(m, busyRun()...); err != nil {
		t.Fatal(err)
	}
	events, err := m.Close(moment(), event.RunStarted{}, cancel)
	if err != nil {
		t.Fatal(err)
	}
	want := []event.Draft{
		root(lostTool("e")), in(lostTool("d"), "a"), in(event.ReasoningFinished{MessageID: "r"}, "a"),
		exited("c", event.NamespaceCancelled, "a"), root(lostTool("c")), textFinished("m"), root(cancel),
	}
	for i, e := range events {
		if i >= len(want) || !reflect.DeepEqual(e.Draft(), want[i]) || e.Sequence != uint64(8+i) || e.RunID != runID {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	if len(events) != len(want) || len(m.OpenItems()) != 0 {
		t.Errorf("%d closing events, %d items left open", len(events), len(m.OpenItems()))
	}
}

func TestCloseAfterAViolation(t *testing.T) {
	t.Parallel()
	m := newMachine()
	if err := feed(m, append(busyRun(), toolFinished("unknown"))...); err == nil {
		t.Fatal("no violation")
	}
	end := event.RunError{Code: "protocol", Message: "The worker broke the protocol.", SideEffectStatus: event.SideEffectsPossible}
	events, err := m.Close(moment(), event.RunStarted{}, end)
	if err != nil || len(events) != 7 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if te, ok := events[0].Data.(event.ToolError); !ok || te.Code != "protocol" {
		t.Errorf("first closed by %+v", events[0].Data)
	}
	if err := m.Accept(m.Stamp(warning(), moment())); err == nil {
		t.Error("an event was taken after the terminal")
	}
}

func TestCloseBeginsARunOfWhichNothingWasSeen(t *testing.T) {
	t.Parallel()
	end := failed().Data
	m := newMachine()
	if err := feed(m, textStarted("m")); err == nil {
		t.Fatal("no violation")
	}
	if _, err := m.Close(moment(), event.RunStarted{}, end); err == nil || m.Next() != 0 {
		t.Fatalf("begun without saying by whom: %v, next is %d", err, m.Next())
	}
	events, err := m.Close(moment(), event.RunStarted{HarnessID: "native", AdapterVersion: "1"}, end)
	if err != nil || len(events) != 2 || events[0].Type() != event.TypeRunStarted || events[1].Type() != event.TypeRunError {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestCloseRefusesWhatIsNoClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]event.Data{
		"success":            finished().Data,
		"interrupt":          interrupted(event.InterruptedForHumanInput).Data,
		"no terminal":        warning().Data,
		"nothing":            nil,
		"not a valid error":  event.RunError{Code: "no code"},
		"not a valid cancel": event.RunCancelled{},
	} {
		m := newMachine()
		if err := feed(m, busyRun()...); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Close(moment(), event.RunStarted{}, end); err == nil {
			t.Errorf("%s: closed", name)
		}
		if _, ended := m.Terminal(); ended || m.Next() != 8 || len(m.OpenItems()) != 6 {
			t.Errorf("%s: the refused close changed the run", name)
		}
	}
	m := newMachine()
	if err := feed(m, started(), finished()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Close(moment(), event.RunStarted{}, failed().Data); err == nil {
		t.Error("a second terminal")
	}
}

// log is a log that yields the events and then the error, if there is one.
func log(events []event.Event, err error) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(event.Event{}, err)
		}
	}
}

// However far a run has got, a machine that reads the log of it goes on like the
// one that saw it happen.
func TestReplayRebuildsTheMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := eventtest.Run().Draw(t, "run")
		cut := rapid.IntRange(0, len(run)).Draw(t, "cut")
		seen := event.NewMachine(eventtest.RunID, eventtest.ConversationID, event.Bounds{})
		for _, e := range run[:cut] {
			if err := seen.Accept(e); err != nil {
				t.Fatal(err)
			}
		}
		// What is refused leaves no trace in the log, nor in what is read from it.
		_ = seen.Accept(seen.Stamp(toolFinished("never opened"), moment()))
		read := event.NewMachine(eventtest.RunID, eventtest.ConversationID, event.Bounds{})
		if err := read.Replay(log(run[:cut], nil)); err != nil {
			t.Fatal(err)
		}
		started := event.RunStarted{HarnessID: "native", AdapterVersion: "1"}
		one, errOne := seen.Close(moment(), started, failed().Data)
		two, errTwo := read.Close(moment(), started, failed().Data)
		if !reflect.DeepEqual(one, two) || (errOne == nil) != (errTwo == nil) || seen.Bytes() != read.Bytes() {
			t.Fatalf("closed by %+v (%v) and by %+v (%v)", one, errOne, two, errTwo)
		}
		if !reflect.DeepEqual(seen.Pending(), read.Pending()) {
			t.Fatalf("pending %+v and %+v", seen.Pending(), read.Pending())
		}
	})
}

func TestReplayStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("the store is away")
	first := newMachine().Stamp(started(), moment())
	if err := newMachine().Replay(log([]event.Event{first}, broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := newMachine().Replay(log([]event.Event{first, first}, broken)); errors.Is(err, broken) || err == nil {
		t.Errorf("got %v", err)
	}
}

// An interrupted run and the run that resumes it are one whole: what waits in
// the first can be ended in the second.
func TestWhatIsPendingCanBeEndedInTheResumedRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := eventtest.Run().Draw(t, "run")
		m := event.NewMachine(eventtest.RunID, eventtest.ConversationID, event.Bounds{})
		if err := m.Replay(log(run, nil)); err != nil {
			t.Fatal(err)
		}
		end, ended := m.Terminal()
		if !ended {
			t.Fatal("no terminal")
		}
		pending := m.Pending()
		if end.Type() != event.TypeRunInterrupted {
			if len(pending) > 0 {
				t.Fatalf("%s with calls pending: %+v", end.Type(), pending)
			}
			return
		}
		asked, _ := m.Interrupt()
		if len(pending) < len(asked.ToolApprovals) {
			t.Fatalf("%d approvals, %d pending", len(asked.ToolApprovals), len(pending))
		}
		resumed := event.NewMachine("run-2", eventtest.ConversationID, event.Bounds{}, pending...)
		if err := feed(resumed, started()); err != nil {
			t.Fatal(err)
		}
		for _, call := range pending {
			if err := feed(resumed, toolError(call.ToolCallID)); err != nil {
				t.Fatal(err)
			}
		}
		if err := feed(resumed, finished()); err != nil {
			t.Fatal(err)
		}
	})
}
