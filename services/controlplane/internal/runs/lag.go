package runs

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// lag is how far a reader is behind what is committed.
type lag struct {
	of FollowOptions

	mu    sync.Mutex
	taken uint64
	// committed is the most that was seen of what there is to take.
	committed uint64
	// since is when the reader last had everything.
	since time.Time
	// over stays once the reader was too far behind.
	over bool
}

func (l *lag) take(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken += uint64(bytes) //nolint:gosec // a length is not negative
}

// read says that a page was read, which is to be taken now.
func (l *lag) read(page []json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.taken
	for _, raw := range page {
		to += uint64(len(raw))
	}
	l.committed = max(l.committed, to)
}

func (l *lag) tooFar(committed uint64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = max(l.committed, committed)
	if l.committed <= l.taken {
		l.since = now
		return l.over
	}
	bytes := l.of.MaxBehind > 0 && l.committed-l.taken > l.of.MaxBehind
	long := l.of.MaxLag > 0 && now.Sub(l.since) > l.of.MaxLag
	l.over = l.over || bytes || long
	return l.over
}

// watchElsewhere is how often a reader's bound is compared with the record of a run that
// another replica drives.
const watchElsewhere = time.Second

// watchLag interrupts a reader that gets too far behind, also while it takes
// nothing at all: a blocked write looks at no bound but its own. The returned
// function ends the watch and waits.
func (s *Service) watchLag(ctx context.Context, bindingID, runID string, l *lag) (stop func()) {
	if l.of.Interrupt == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			changed, committed := s.hub.watch(runID)
			wait := pollEvery
			if changed == nil {
				committed, wait = s.loggedElsewhere(ctx, bindingID, runID), watchElsewhere
			}
			if l.tooFar(committed, time.Now()) {
				l.of.Interrupt()
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-time.After(wait):
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}

// loggedElsewhere is the size of the log of a run that this replica does not drive: 0
// where it is over or cannot be read, which puts nobody behind.
func (s *Service) loggedElsewhere(ctx context.Context, bindingID, runID string) uint64 {
	rec, err := s.cfg.Writer.Backend().Load(ctx, bindingID)
	if err != nil || rec.Run == nil || rec.Run.ID != runID {
		return 0
	}
	return rec.Run.LogBytes
}
