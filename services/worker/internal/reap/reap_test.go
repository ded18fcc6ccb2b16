//go:build linux

package reap_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/reap"
)

func TestMain(m *testing.M) {
	// What process 1 of a pid namespace is by itself: orphans come to it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// bound is longer than anything here may take.
const bound = 60 * time.Second

// A thousand orphans are waited for, whoever made them, and beside them each child
// that somebody waits for has its own status, however soon it ends.
func TestNoOrphanStays(t *testing.T) {
	const orphans, children = 1000, 200
	var mu sync.Mutex
	ended := 0
	r := reap.New(func(unix.WaitStatus) {
		mu.Lock()
		defer mu.Unlock()
		ended++
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()

	_, made := start(t, r, fmt.Sprintf(`for (1..%d) { my $p = fork; if (!$p) { fork; exit } waitpid $p, 0 } exit 3`, orphans))
	for i := range children {
		if _, end := start(t, r, fmt.Sprintf("exit %d", i)); status(t, end) != i {
			t.Errorf("the status of child %d is another's", i)
		}
	}
	if got := status(t, made); got != 3 {
		t.Errorf("whoever made the orphans ended with %d", got)
	}
	deadline := time.Now().Add(bound)
	for {
		next := r.Next()
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a child is left: %v", err)
		}
		select {
		case <-next:
		case <-time.After(time.Millisecond):
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := orphans + children + 1; ended != want {
		t.Errorf("%d ends were seen, want %d", ended, want)
	}
}

// A child that could not be made is not waited for.
func TestWhatDidNotStart(t *testing.T) {
	failed := errors.New("no")
	if pid, end, err := reap.New(nil).Start(func() (int, error) { return 7, failed }); pid != 0 || end != nil || !errors.Is(err, failed) {
		t.Errorf("%d, %v, %v", pid, end, err)
	}
}

// start starts a program of perl.
func start(t *testing.T, r *reap.Reaper, script string) (int, <-chan unix.WaitStatus) {
	t.Helper()
	pid, end, err := r.Start(func() (int, error) {
		return syscall.ForkExec("/usr/bin/perl", []string{"perl", "-e", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid, end
}

func status(t *testing.T, end <-chan unix.WaitStatus) int {
	t.Helper()
	select {
	case s := <-end:
		return s.ExitStatus()
	case <-time.After(bound):
		t.Fatal("nobody said that it has ended")
		return 0
	}
}
