package runs_test

import (
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// A question that was not answered in its time is gone, and the conversation goes
// on without the answer. Before that it stands, however often it is looked at.
func TestAQuestionExpires(t *testing.T) {
	var later atomic.Int64
	var looks atomic.Int64
	s := newStack(t, asking, runstest.Options{Change: func(c *runs.Config) {
		c.IdleAfter = 200 * time.Millisecond
		c.Now = func() time.Time { looks.Add(1); return time.Now().Add(time.Duration(later.Load())) }
	}})
	first := start(t, s, "write")
	last[event.RunInterrupted](t, follow(t, s, first.RunID))
	later.Store(int64(6 * 24 * time.Hour))
	seen := looks.Load()
	waittest.Until(t, "it was looked at again", func() bool { return looks.Load() > seen+10 })
	if p, err := s.Runs.PendingInterrupt(t.Context(), runstest.Caller(), "demo", "c1"); err != nil || p == nil {
		t.Fatalf("after six days it waits for %+v, %v", p, err)
	}
	later.Store(int64(8 * 24 * time.Hour))
	waittest.Until(t, "the question is gone", func() bool {
		p, err := s.Runs.PendingInterrupt(t.Context(), runstest.Caller(), "demo", "c1")
		return err == nil && p == nil
	})
	if _, err := resume(t, s, first.RunID, decide(event.DecisionApprove, event.DecisionReject)); !fault.Is(err, fault.InterruptNotFound) {
		t.Errorf("a late answer: %v", err)
	}
	last[event.RunInterrupted](t, follow(t, s, start(t, s, "write").RunID))
}
