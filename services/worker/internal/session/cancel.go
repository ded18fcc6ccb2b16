package session

import (
	"context"
	"slices"
	"time"

	"cofferdam.dev/pkg/event"
)

// keptCancels is how many cancels that came before their start are remembered.
const keptCancels = 64

// cancelWait is how long a cancel is not answered so that it can say whether the
// harness has stopped.
const cancelWait = 2 * time.Second

// Cancelled is what is known when a cancel is answered.
type Cancelled struct {
	// Active says that the run was active when the request came.
	Active bool
	// Stopped says that no harness works for the run: it has really stopped, or
	// has not begun and will not.
	Stopped bool
}

// Cancel asks a run to stop, and waits for its harness until ctx ends and for at
// most 2 s. It may come before, during and after the run, and any number of
// times; the first reason stands. One that comes before the start is remembered:
// the run will be cancelled without anything having happened.
func (s *Session) Cancel(ctx context.Context, runID string, reason event.CancelReason) Cancelled {
	s.mu.Lock()
	r := s.active
	if r == nil || r.env.RunID != runID {
		if _, ended := s.outcomes.of(runID); !ended {
			s.early.remember(runID, reason)
		}
		s.mu.Unlock()
		return Cancelled{Stopped: true}
	}
	active := !r.stuck
	s.mu.Unlock()
	r.cancel(reason)
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	return Cancelled{Active: active, Stopped: wait(ctx, r.stopped) == nil}
}

// earlyCancels are cancels that came before their start, the oldest first. When
// there are too many the oldest is forgotten.
type earlyCancels []earlyCancel

type earlyCancel struct {
	runID  string
	reason event.CancelReason
}

func (c *earlyCancels) remember(runID string, reason event.CancelReason) {
	if c.index(runID) >= 0 {
		return
	}
	*c = append(*c, earlyCancel{runID, reason})
	if len(*c) > keptCancels {
		*c = slices.Delete(*c, 0, 1)
	}
}

func (c *earlyCancels) take(runID string) (event.CancelReason, bool) {
	i := c.index(runID)
	if i < 0 {
		return "", false
	}
	reason := (*c)[i].reason
	*c = slices.Delete(*c, i, i+1)
	return reason, true
}

func (c *earlyCancels) index(runID string) int {
	return slices.IndexFunc(*c, func(e earlyCancel) bool { return e.runID == runID })
}
