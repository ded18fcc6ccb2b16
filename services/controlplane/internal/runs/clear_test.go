package runs_test

import (
	"sync/atomic"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

func clearOf(t *testing.T, s *runstest.Stack, epoch ...uint32) runs.Cleared {
	t.Helper()
	var only *uint32
	if len(epoch) > 0 {
		only = &epoch[0]
	}
	c, err := s.Runs.Clear(t.Context(), runstest.Caller(), "demo", "c1", only)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A cleared conversation begins anew: no head, another sandbox, and the log of
// what was said before stays. A clear of one epoch that is repeated clears no
// other.
func TestClear(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	first := start(t, s, "one")
	last[event.RunFinished](t, follow(t, s, first.RunID))
	before := s.Record(t, first.BindingID)
	c := clearOf(t, s, 0)
	if c.BindingID != first.BindingID || c.Epoch != 1 {
		t.Fatalf("%+v", c)
	}
	if rec := s.Record(t, first.BindingID); rec.Head.Revision != 0 || rec.Generation <= before.Generation {
		t.Errorf("%+v", rec)
	}
	waittest.Until(t, "the sandbox is given back", func() bool { return len(s.Record(t, first.BindingID).Ending) == 0 })
	second := start(t, s, "two")
	finished := last[event.RunFinished](t, follow(t, s, second.RunID))
	if second.Epoch != 1 || *finished.ThreadState.DurableRevision != 1 || s.Provider.Made() != 2 {
		t.Errorf("%+v %+v in %d sandboxes", second, finished.ThreadState, s.Provider.Made())
	}
	if again := clearOf(t, s, 0); again != c {
		t.Errorf("a repeated clear: %+v", again)
	}
	if rec := s.Record(t, first.BindingID); rec.Head.Revision != 1 {
		t.Errorf("it has cleared the next epoch, too: %+v", rec.Head)
	}
	if events := follow(t, s, first.RunID); len(events) == 0 {
		t.Error("the log of the first epoch is gone")
	}
	if c := clearOf(t, s); c.Epoch != 2 {
		t.Errorf("a clear of whatever there is: %+v", c)
	}
}

// A run that is under way is cancelled by the clear, and says so; the next one
// waits for it.
func TestClearOfARunThatIsUnderWay(t *testing.T) {
	var said atomic.Bool
	s := newStack(t, func(**runstest.Stack) runstest.Script { return endless(&said) }, runstest.Options{})
	r := start(t, s, "hi")
	waittest.Until(t, "it says something", said.Load)
	clearOf(t, s)
	if end := last[event.RunCancelled](t, follow(t, s, r.RunID)); end.Reason != event.CancelledByClient {
		t.Errorf("%+v", end)
	}
	if next := start(t, s, "again"); next.Epoch != 1 {
		t.Errorf("%+v", next)
	}
}

// What was asked is asked no more.
func TestClearOfAQuestion(t *testing.T) {
	s := newStack(t, asking, runstest.Options{})
	first := start(t, s, "write")
	last[event.RunInterrupted](t, follow(t, s, first.RunID))
	clearOf(t, s)
	if p, err := s.Runs.PendingInterrupt(t.Context(), runstest.Caller(), "demo", "c1"); err != nil || p != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := resume(t, s, first.RunID, decide(event.DecisionApprove, event.DecisionReject)); !fault.Is(err, fault.InterruptNotFound) {
		t.Errorf("an answer after the clear: %v", err)
	}
	last[event.RunInterrupted](t, follow(t, s, start(t, s, "write").RunID))
}

func TestClearOfWhatIsNotThere(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	follow(t, s, start(t, s, "hi").RunID)
	for name, row := range map[string]struct {
		caller       runs.Caller
		conversation string
		epoch        *uint32
		code         fault.Code
	}{
		"no such conversation": {runstest.Caller(), "c2", nil, fault.NotFound},
		"another caller":       {runs.Caller{Subject: "somebody", Organization: runstest.Caller().Organization}, "c1", nil, fault.NotFound},
		"a later epoch":        {runstest.Caller(), "c1", new(uint32(2)), fault.RevisionConflict},
	} {
		if c, err := s.Runs.Clear(t.Context(), row.caller, "demo", row.conversation, row.epoch); !fault.Is(err, row.code) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}
