package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// What a claim has adopted goes with the claim, by its name alone
// (agent-sandbox 587): first the processes, then groups and files, then the
// identity. Nothing is left of any of them.
func TestReleaseDestroysInOrder(t *testing.T) {
	w := start(t, "litter")
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "littered")
	var dirs, removed []string
	all := []int{in.PID}
	w.mu.Lock()
	dirs = w.claims["hc-1"].groups.whole.Dirs()
	w.mu.Unlock()
	for _, dir := range dirs {
		all = append(all, members(t, dir)...)
	}
	if len(dirs) > 0 && len(all) < 1+2*len(dirs) {
		t.Errorf("%d processes in %d groups: the worker and its child should be in each", len(all)-1, len(dirs))
	}
	var there syscall.Stat_t // of its workspace, which is in no other place
	if !w.rootless() {
		// As long as it is held, the kernel gives its number to no other file system.
		held, err := os.Open(fmt.Sprintf("/proc/%d/root/workspace/a/b/secret", in.PID))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		if err := syscall.Fstat(int(held.Fd()), &there); err != nil {
			t.Fatal(err)
		}
	}
	w.ids.hooks(nil, func(_ context.Context, uid string) error {
		removed = append(removed, uid)
		for _, pid := range all {
			if exists(pid) {
				t.Errorf("the identity is taken back while process %d is there", pid)
			}
		}
		for _, path := range append(dirs, strings.TrimPrefix(in.Address, "unix://")) {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the identity is taken back while %s is there: %v", path, err)
			}
		}
		return nil
	})
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	if len(removed) != 1 || removed[0] != in.UID {
		t.Errorf("took back %v, want %s once", removed, in.UID)
	}
	w.empty(t)
	if left := w.groups(t); len(left) > 0 {
		t.Errorf("groups are left: %v", left)
	}
	nothing(t, w.Exits())
	if mounted(t, there.Dev) {
		t.Error("its workspace is still mounted somewhere")
	}
}

// members are the processes of a group.
func members(t *testing.T, dir string) []int {
	t.Helper()
	raw, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for line := range strings.FieldsSeq(string(raw)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// mounted reports whether any process of the machine has a file system mounted.
func mounted(t *testing.T, dev uint64) bool {
	t.Helper()
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	number := fmt.Sprintf(" %d:%d ", unix.Major(dev), unix.Minor(dev))
	for _, table := range tables {
		raw, err := os.ReadFile(table)
		if err == nil && strings.Contains(string(raw), number) { // else it has ended
			return true
		}
	}
	return false
}

func TestReleaseIsRepeatable(t *testing.T) {
	w := start(t, "patient")
	in := w.claim(t, "hc-1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := w.Release(t.Context(), "hc-1"); err != nil {
				t.Errorf("release: %v", err)
			}
			if exists(in.PID) {
				t.Error("release answered before the end")
			}
		})
	}
	wg.Wait()
	if err := w.Release(t.Context(), "never-claimed"); err != nil {
		t.Errorf("release of no claim: %v", err)
	}
}

func TestReleaseEndsWhatIgnoresSIGTERM(t *testing.T) {
	w := start(t, "stubborn")
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "ignoring")
	looked := make(chan struct{}) // it has not ended before that, however slow the machine is
	w.ids.hooks(nil, func(ctx context.Context, _ string) error {
		select {
		case <-looked:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.Release(ctx, "hc-1"); !fault.Is(err, fault.DeadlineExceeded) {
		t.Errorf("release with a short context: %v", err)
	}
	// It goes on ending, and is nobody's any more.
	if w.alive(t, in) {
		t.Error("alive while it is being ended")
	}
	if _, err := w.Claim(t.Context(), claim("hc-1")); !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("claim while it is being ended: %v", err)
	}
	close(looked)
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	if exists(in.PID) {
		t.Error("released and still there")
	}
}

func TestReleaseEndsAStart(t *testing.T) {
	w := start(t, "patient")
	begun := make(chan struct{})
	w.ids.onRegister = func(ctx context.Context, _ string) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	claimed := make(chan error, 1)
	go func() { _, err := w.Claim(t.Context(), claim("hc-1")); claimed <- err }()
	<-begun
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("claim: %v", err)
	}
	w.empty(t)
}

// What cannot be cleaned up is tried again, and the claim is not released before.
func TestWhatIsLeftIsTriedAgain(t *testing.T) {
	w := start(t, "patient", func(c *Config) { c.MaxInstances = 1 })
	w.claim(t, "hc-1")
	tries, mended := make(chan struct{}, 100), make(chan struct{})
	w.ids.hooks(nil, func(context.Context, string) error {
		tries <- struct{}{}
		select {
		case <-mended:
			return nil
		default:
			return errInjected
		}
	})
	released := make(chan error, 1)
	go func() { released <- w.Release(t.Context(), "hc-1") }()
	<-tries
	<-tries
	if _, err := w.Claim(t.Context(), claim("hc-2")); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("its place was given away: %v", err)
	}
	select {
	case err := <-released:
		t.Fatalf("released with its identity still registered: %v", err)
	default:
	}
	close(mended)
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	w.empty(t)
}

// An instance that goes away is told of once, and cleaned up like any other.
func TestAnExitIsToldOnce(t *testing.T) {
	w := start(t, "litter")
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "littered")
	other := w.claim(t, "hc-2")
	if err := syscall.Kill(in.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.Exits():
		if (e != sandbox.Exit{ClaimName: "hc-1", UID: in.UID}) {
			t.Errorf("told of %+v", e)
		}
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}
	if w.alive(t, in) {
		t.Error("alive after its exit was told")
	}
	if err := w.Release(t.Context(), "hc-1"); err != nil { // waits until nothing is left
		t.Fatal(err)
	}
	if listens(t, in.Address) {
		t.Error("its socket is served")
	}
	if left := w.ids.registered(); len(left) != 1 || left[0] != other.UID {
		t.Errorf("identities: %v", left)
	}
	if err := w.Release(t.Context(), "hc-2"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if e, open := <-w.Exits(); open {
		t.Errorf("told of %+v as well", e)
	}
}

// Who does not read exits holds nobody up.
func TestUnreadExitsHoldNobodyUp(t *testing.T) {
	w := start(t, "exit", func(c *Config) { c.MaxInstances = 1 })
	w.exits = make(chan sandbox.Exit) // as full as can be
	for range 3 {
		if _, err := w.Claim(t.Context(), claim("hc-1")); err != nil && !fault.Is(err, fault.SandboxNotReady) {
			t.Fatal(err)
		}
		waittest.Until(t, "the instance is gone", func() bool { return !w.held("hc-1") })
	}
	w.empty(t)
}
