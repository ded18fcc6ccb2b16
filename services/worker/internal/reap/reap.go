//go:build linux

// Package reap waits for all children of a process: those that it has started
// itself, and orphans, which come to process 1 of a pid namespace and to a
// subreaper. One that nobody waits for stays as a zombie, and counts for the limit
// of processes for as long as its parent lives.
//
// Whoever waits for every child takes the end of each, also of one that somebody
// else waits for. So a child whose end matters is started by [Reaper.Start], and
// nothing else in the process may wait by itself: a process that has a Reaper does
// not use os/exec.
package reap

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// Reaper waits for the children of this process, of which there is to be one. It is
// safe for concurrent use.
type Reaper struct {
	mu sync.Mutex
	// watched get the status of a child that somebody waits for.
	watched map[int]chan<- unix.WaitStatus
	// changed is closed and made anew with each round in which a child was gone.
	changed chan struct{}
	seen    func(unix.WaitStatus)
}

// New makes a Reaper. seen is told of the end of every child, and must not call the
// Reaper; nil is not.
func New(seen func(unix.WaitStatus)) *Reaper {
	if seen == nil {
		seen = func(unix.WaitStatus) {}
	}
	return &Reaper{watched: map[int]chan<- unix.WaitStatus{}, changed: make(chan struct{}), seen: seen}
}

// Run reaps until ctx ends.
func (r *Reaper) Run(ctx context.Context) {
	children := make(chan os.Signal, 1) // one is enough: all that have ended are reaped
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	for {
		r.Reap()
		select {
		case <-children:
		case <-ctx.Done():
			return
		}
	}
}

// Reap takes in every child that has ended, and waits for none.
func (r *Reaper) Reap() {
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
		r.seen(status)
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

// Start calls f, which makes a child, and watches it: its status comes on the
// channel. No child is reaped meanwhile, so that its end cannot be missed.
func (r *Reaper) Start(f func() (pid int, err error)) (int, <-chan unix.WaitStatus, error) {
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

// Next is closed when the next child is gone.
func (r *Reaper) Next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
