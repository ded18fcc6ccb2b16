package session

import (
	"slices"

	"cofferdam.dev/pkg/event"
)

// keptCancels is how many cancels that came before their start are remembered.
const keptCancels = 64

// Cancelled is what is known when a cancel is answered.
type Cancelled struct {
	// Active says that the run was active when the request came.
	Active bool
	// Stopped says that no harness works for the run: it has really stopped, or
	// has not begun and will not.
	Stopped bool
}

// Cancel asks a run to stop and does not wait for it. It may come before, during
// and after the run, and any number of times; the first reason stands. One that
// comes before the start is remembered: the run will be cancelled without
// anything having happened.
func (s *Session) Cancel(runID string, reason event.CancelReason) Cancelled {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active != nil && s.active.env.RunID == runID {
		s.active.cancel(reason)
		return Cancelled{Active: true}
	}
	if _, ended := s.outcomes.of(runID); !ended {
		s.early.remember(runID, reason)
	}
	return Cancelled{Stopped: true}
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
