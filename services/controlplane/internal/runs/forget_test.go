package runs_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// Events are kept for as long as the operator says, and how a run ended for good.
func TestEventsAreKeptForAWhile(t *testing.T) {
	var later, looks atomic.Int64
	const keep = 30 * 24 * time.Hour
	s := newStack(t, say("hello"), runstest.Options{Change: func(c *runs.Config) {
		c.KeepEvents, c.ForgetEvery = keep, 20*time.Millisecond
		c.Now = func() time.Time { looks.Add(1); return time.Now().Add(time.Duration(later.Load())) }
	}})
	run := start(t, s, "hello")
	last[event.RunFinished](t, follow(t, s, run.RunID))
	later.Store(int64(keep - time.Hour))
	seen := looks.Load()
	waittest.Until(t, "it was looked at again", func() bool { return looks.Load() > seen+10 })
	if p, err := s.Runs.Events(t.Context(), runstest.Caller(), run.RunID, 0, 0); err != nil || len(p.Events) == 0 {
		t.Fatalf("before their time is over: %d events, %v", len(p.Events), err)
	}
	later.Store(int64(keep + time.Hour))
	waittest.Until(t, "the events are gone", func() bool {
		_, err := s.Runs.Events(t.Context(), runstest.Caller(), run.RunID, 0, 0)
		var f *fault.Error
		return fault.Is(err, fault.NotFound) && errors.As(err, &f) && strings.Contains(f.Detail(), "not kept any more")
	})
	st, err := s.Runs.Status(t.Context(), runstest.Caller(), run.RunID)
	if err != nil || st.RunID != run.RunID {
		t.Errorf("the status is %+v, %v", st, err)
	}
}
