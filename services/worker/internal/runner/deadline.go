//go:build linux

package runner

import (
	"sync"
	"time"
)

// deadline is a point in time that can come closer.
type deadline struct {
	passed chan struct{}

	mu    sync.Mutex
	at    time.Time
	timer *time.Timer
}

func newDeadline(d time.Duration) *deadline {
	l := &deadline{passed: make(chan struct{}), at: time.Now().Add(d)}
	l.timer = time.AfterFunc(d, sync.OnceFunc(func() { close(l.passed) }))
	return l
}

// shorten makes it pass after d, where that is earlier.
func (l *deadline) shorten(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := time.Now().Add(d); at.Before(l.at) {
		l.at = at
		l.timer.Reset(d)
	}
}

func (l *deadline) stop() { l.timer.Stop() }
