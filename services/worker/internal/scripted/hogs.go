package scripted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// Steps that use up what a sandbox has, or end the worker.

type exitStep struct {
	kind
	Code int `json:"code"`
}

func (*exitStep) hostile() {}

func (s *exitStep) play(context.Context, actor) error {
	os.Exit(s.Code) //nolint:forbidigo // what the script wants
	return nil
}

// crashStep kills the worker with a signal that nobody can catch.
type crashStep struct{ kind }

func (*crashStep) hostile() {}

func (*crashStep) play(context.Context, actor) error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fault.Wrap(err, fault.Internal, "scripted.crash")
	}
	// Process 1 of a namespace, as which a sandbox runs its worker, is spared its
	// own signals.
	os.Exit(128 + int(syscall.SIGKILL)) //nolint:forbidigo // what the script wants
	return nil
}

// forkStep makes processes that sleep, and ends them at the end of the step. It
// says how many it could make.
type forkStep struct {
	kind
	Count int `json:"count"`
	MS    int `json:"ms"`
}

func (*forkStep) hostile() {}

func (s *forkStep) check() error { return checkMS(s.MS) }

func (s *forkStep) play(ctx context.Context, a actor) error {
	var pids []int
	var last error
	for range s.Count {
		pid, err := fork(time.Duration(maxMS)*time.Millisecond, false)
		if err != nil {
			last = err
			break
		}
		pids = append(pids, pid)
	}
	waited := pause(ctx, s.MS)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil) // the worker, which reaps all, may have been first
	}
	return errors.Join(waited, a.report(ctx, fmt.Sprintf("forked %d", len(pids)), last))
}

// forkBombStep makes processes that make processes, until nothing gives any more.
// They end by themselves after a while.
type forkBombStep struct {
	kind
	MS int `json:"ms"`
}

func (*forkBombStep) hostile() {}

func (s *forkBombStep) check() error { return checkMS(s.MS) }

func (s *forkBombStep) play(ctx context.Context, a actor) error {
	_, err := fork(time.Duration(s.MS)*time.Millisecond, true)
	return errors.Join(pause(ctx, s.MS), a.report(ctx, "fork bomb", err))
}

// orphansStep makes processes that are nobody's and have ended. No more than a few of
// them are made before those of before are gone, and that they go is what it waits for.
type orphansStep struct {
	kind
	Count int `json:"count"`
}

func (*orphansStep) hostile() {}

func (s *orphansStep) play(ctx context.Context, a actor) error {
	const few = 16
	made := 0
	var last error
	for ; made < s.Count && last == nil && ctx.Err() == nil; made++ {
		var pid int
		if pid, last = orphan(); last != nil {
			break
		}
		_, _ = syscall.Wait4(pid, nil, 0, nil) // the worker, which reaps all, may have been first
		for made%few == 0 && ctx.Err() == nil && zombies() {
			last = pause(ctx, 1)
		}
	}
	return errors.Join(ctx.Err(), a.report(ctx, fmt.Sprintf("made %d orphans", made), last))
}

// zombies reports whether a child has ended that nobody has waited for.
func zombies() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// memoryHogStep takes memory and uses it, for a while.
type memoryHogStep struct {
	kind
	Bytes int64 `json:"bytes"`
	MS    int   `json:"ms,omitempty"`
}

func (*memoryHogStep) hostile() {}

func (s *memoryHogStep) check() error { return checkMS(s.MS) }

func (s *memoryHogStep) play(ctx context.Context, a actor) error {
	const chunk = 4 << 20
	var held [][]byte
	for got := int64(0); got < s.Bytes && ctx.Err() == nil; got += chunk {
		piece := make([]byte, chunk)
		for at := 0; at < chunk; at += 4096 {
			piece[at] = 1
		}
		held = append(held, piece)
	}
	err := pause(ctx, s.MS)
	goruntime.KeepAlive(held)
	return errors.Join(err, a.report(ctx, fmt.Sprintf("held %d bytes", len(held)*chunk), nil))
}

// goroutinesStep starts goroutines, each with a thread of its own where Threads.
type goroutinesStep struct {
	kind
	Count   int  `json:"count"`
	Threads bool `json:"threads,omitempty"`
	MS      int  `json:"ms,omitempty"`
}

func (*goroutinesStep) hostile() {}

func (s *goroutinesStep) check() error { return checkMS(s.MS) }

func (s *goroutinesStep) play(ctx context.Context, a actor) error {
	var wg sync.WaitGroup
	end := make(chan struct{})
	for range s.Count {
		wg.Go(func() {
			if s.Threads {
				goruntime.LockOSThread() // the thread ends with the goroutine
			}
			<-end
		})
	}
	err := pause(ctx, s.MS)
	close(end)
	wg.Wait()
	return errors.Join(err, a.report(ctx, fmt.Sprintf("ran %d goroutines", s.Count), nil))
}

// diskStep fills a folder with one file, and takes it away again.
type diskStep struct {
	kind
	Folder string `json:"folder"`
	Bytes  int64  `json:"bytes"`
	MS     int    `json:"ms,omitempty"`
}

func (*diskStep) hostile() {}

func (s *diskStep) check() error { return checkMS(s.MS) }

func (s *diskStep) play(ctx context.Context, a actor) error {
	name := filepath.Join(s.Folder, "filler-"+a.tag)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return a.report(ctx, "wrote 0 bytes", err)
	}
	var written int64
	chunk := make([]byte, 1<<20)
	for written < s.Bytes && ctx.Err() == nil && err == nil {
		var n int
		n, err = f.Write(chunk[:min(int64(len(chunk)), s.Bytes-written)])
		written += int64(n)
	}
	waited := pause(ctx, s.MS)
	_ = f.Close() // what it says of a full disk was said before
	return errors.Join(waited, a.report(ctx, fmt.Sprintf("wrote %d bytes", written), err), os.Remove(name))
}

// spinStep burns processors for a while, whatever happens to its run.
type spinStep struct {
	kind
	MS      int `json:"ms"`
	Threads int `json:"threads,omitempty"`
}

func (*spinStep) hostile() {}

func (s *spinStep) check() error { return checkMS(s.MS) }

func (s *spinStep) play(ctx context.Context, a actor) error {
	var wg sync.WaitGroup
	until := time.Now().Add(time.Duration(s.MS) * time.Millisecond)
	for range max(s.Threads, 1) {
		wg.Go(func() {
			for time.Now().Before(until) {
			}
		})
	}
	wg.Wait()
	return a.report(ctx, "spun", nil)
}

// report says how far something got, and what stopped it, as a text of its own
// that tests look for.
func (a actor) report(ctx context.Context, what string, err error) error {
	return a.say(ctx, event.Truncate(what+": "+reason(err), maxReport))
}

const maxReport = 4 << 10
