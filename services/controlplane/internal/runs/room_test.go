package runs_test

import (
	"errors"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// noRoom is what a provider says that has none.
func noRoom() error { return fault.New(fault.SandboxCapacity, "test", fault.RetryAfter(5*time.Second)) }

// That there is no room is said at once, with when to ask again, and before anything of
// the run is committed: the same request is a new run later.
func TestNoRoomIsSaidBeforeARunIsCommitted(t *testing.T) {
	t.Parallel()
	s := newStack(t, say("hello"), runstest.Options{})
	s.Provider.Full(noRoom())
	_, err := s.Runs.Start(t.Context(), runstest.Caller(), request())
	if f := fault.From(err, "test"); f.Code() != fault.SandboxCapacity || f.RetryAfter() != 5*time.Second {
		t.Fatalf("err = %v, again after %v", err, f.RetryAfter())
	}
	rec := s.Record(t, bindingID(t))
	if rec.Run != nil || len(rec.Ending) > 0 || rec.Revision > 1 {
		t.Errorf("something was committed: %+v", rec)
	}
	if _, err := s.Writer.Backend().LoadRun(t.Context(), binding.RunID(rec.ID, 0, key)); !errors.Is(err, binding.ErrNotFound) {
		t.Errorf("there is a run: %v", err)
	}
	s.Provider.Full(nil)
	r, err := s.Runs.Start(t.Context(), runstest.Caller(), request())
	if err != nil || !r.New {
		t.Fatalf("%+v, %v", r, err)
	}
	last[event.RunFinished](t, follow(t, s, r.RunID))
}

// A run that is there is answered although there is no room for another one, and a
// conversation that has its sandbox needs none.
func TestARunThatNeedsNoRoomAsksForNone(t *testing.T) {
	t.Parallel()
	s := newStack(t, say("hello"), runstest.Options{Change: often})
	first, err := s.Runs.Start(t.Context(), runstest.Caller(), request())
	if err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, follow(t, s, first.RunID))
	s.Provider.Full(noRoom())
	last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
	before := s.Record(t, first.BindingID)
	s.Provider.Vanish(before.Lease.ClaimName)
	waittest.Until(t, "the lease is replaced", func() bool {
		rec := s.Record(t, first.BindingID)
		return rec.Generation == before.Generation+1 && len(rec.Ending) == 0
	})
	again, err := s.Runs.Start(t.Context(), runstest.Caller(), request())
	if err != nil || again.New || again.RunID != first.RunID {
		t.Errorf("the same start again: %+v, %v", again, err)
	}
	if _, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: "more"}); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("another start: %v, want sandbox_capacity", err)
	}
}

// A decision is not used up by a run for which there is no room.
func TestADecisionWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := newStack(t, asking, runstest.Options{Change: often})
	r := start(t, s, "hi")
	last[event.RunInterrupted](t, follow(t, s, r.RunID))
	before := s.Record(t, r.BindingID)
	s.Provider.Vanish(before.Lease.ClaimName)
	waittest.Until(t, "the lease is replaced", func() bool {
		rec := s.Record(t, r.BindingID)
		return rec.Generation == before.Generation+1 && len(rec.Ending) == 0
	})
	decides := runs.ResumeRequest{RunID: r.RunID, InterruptID: "i1", Revision: before.Interrupt.Revision, Decision: event.ResumeDecision{Dismiss: true}}
	s.Provider.Full(noRoom())
	if _, err := s.Runs.Resume(t.Context(), runstest.Caller(), decides); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("err = %v, want sandbox_capacity", err)
	}
	if s.Record(t, r.BindingID).Interrupt == nil {
		t.Fatal("the interrupt is not pending any more")
	}
	s.Provider.Full(nil)
	resumed, err := s.Runs.Resume(t.Context(), runstest.Caller(), decides)
	if err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, followResumed(t, s, resumed.RunID, decides.Decision))
}
