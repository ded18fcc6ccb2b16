//go:build linux

package runner

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper waits for every child: those that were started here, and orphans, which
// come to process 1 and to a subreaper.
type reaper struct {
	mu sync.Mutex
	// watched get the status of a child that somebody waits for.
	watched map[int]chan<- unix.WaitStatus
	// changed is closed and made anew with each child that is gone.
	changed chan struct{}
	// cpu: one was ended for the processor time that it had used.
	cpu bool
}

func newReaper() *reaper {
	return &reaper{watched: map[int]chan<- unix.WaitStatus{}, changed: make(chan struct{})}
}

// run reaps until ctx ends.
func (r *reaper) run(ctx context.Context) {
	children := make(chan os.Signal, 1) // one is enough: all that have ended are reaped
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	for {
		r.reap()
		select {
		case <-children:
		case <-ctx.Done():
			return
		}
	}
}

// reap takes in every child that has ended.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := false
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			break
		}
		gone = true
		r.cpu = r.cpu || status.Signaled() && status.Signal() == unix.SIGXCPU
		if ended, ok := r.watched[pid]; ok {
			delete(r.watched, pid)
			ended <- status // has room for it
		}
	}
	if gone {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// start calls f, which makes a child, and watches it. No child is reaped
// meanwhile, so that its end cannot be missed.
func (r *reaper) start(f func() (pid int, err error)) (int, <-chan unix.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := f()
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan unix.WaitStatus, 1)
	r.watched[pid] = ended
	return pid, ended, nil
}

// next is closed when the next child is gone.
func (r *reaper) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *reaper) sawCPU() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cpu
}
