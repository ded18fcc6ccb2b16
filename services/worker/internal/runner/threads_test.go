//go:build linux

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
)

// A program that has taken every process that its group may have takes none of the
// runner's: whatever a worker asks for is done without another thread, and the program
// can be ended.
func TestAForkBombLeavesTheRunnerItsThreads(t *testing.T) {
	nested(t)
	s := runnertest.StartNested(t)
	w := s.Dial(t)
	const most = 8 // of the program
	group := crowded(t, s, most)
	// They spin, so that the runner is put off its processor wherever it is.
	p := begin(t, w, shell(`exec perl -e '$| = 1; while (defined(my $p = fork)) { if (!$p) { 1 while 1 } } print "full\n"; sleep 600'`))
	line(t, p)
	for round := range 8 {
		var calls sync.WaitGroup
		for i := range 12 {
			calls.Go(func() {
				f := hosted.File{Path: fmt.Sprintf("%s/f%d", hosted.Home, i)}
				if err := w.WriteFile(t.Context(), f, strings.NewReader(strings.Repeat("x", 64<<10))); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if _, err := w.Limits(t.Context()); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		calls.Wait()
		if t.Failed() {
			return
		}
	}
	if c, err := group.Counters(); err != nil || c.ForksRefused == 0 {
		t.Errorf("the group was not full, so that nothing is shown: %+v, %v", c, err)
	}
	must(t, w.KillAll(t.Context(), 0))
	if got := output(t, w, "echo still works"); got != "still works\n" {
		t.Errorf("%q", got)
	}
}

// crowded puts a runner into a group that has room for so many processes more.
func crowded(t *testing.T, s *runnertest.Stand, more int64) *cgroup.Group {
	t.Helper()
	m, err := cgroup.Open(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	for _, missing := range m.Missing() {
		if missing.Controller == cgroup.PIDs {
			t.Skipf("NOT TESTED on this machine: %s", missing)
		}
	}
	g, err := m.Create("runner", cgroup.Limits{PIDs: threadsOf(t, s.Process.Pid) + more})
	must(t, err)
	t.Cleanup(func() { // before the runner is ended, which it would be as well
		must(t, errors.Join(s.Process.Kill(), g.Remove(context.WithoutCancel(t.Context()))))
	})
	must(t, g.Add(s.Process.Pid))
	return g
}

func threadsOf(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(raw), "\nThreads:\t")
	n, err := strconv.ParseInt(rest[:strings.IndexByte(rest, '\n')], 10, 64)
	must(t, err)
	return n
}
