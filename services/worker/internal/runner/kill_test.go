//go:build linux

package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// processes lists what lives in the world of a runner, as the machine sees it.
func processes(t testing.TB, s *runnertest.Stand) (pids []int) {
	t.Helper()
	parents := map[int]int{}
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat")); err == nil {
			fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
			parents[pid], err = strconv.Atoi(fields[1])
			must(t, err)
		}
	}
	for pid := range parents {
		for up := parents[pid]; up > 1; up = parents[up] {
			if up == s.Process.Pid {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// Whatever a program does to be missed, nothing of it is left.
func TestKillAll(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"plain":             `echo ready; sleep 600`,
		"orphan":            `(sleep 600 &); echo ready; sleep 600`,
		"own session twice": `setsid sh -c 'setsid sh -c "echo ready; exec sleep 600" & exit' & wait; sleep 600`,
		"ignores SIGTERM":   `trap '' TERM HUP INT; setsid sh -c "trap '' TERM; sleep 600" & echo ready; while :; do sleep 600; done`,
		"starts on SIGTERM": `trap 'setsid sleep 600 & setsid sleep 600 &' TERM; echo ready; while :; do sleep 0.01; done`,
		"stopped":           `sleep 600 & kill -STOP $!; echo ready; kill -STOP $$`,
		"first ended":       `setsid sh -c 'echo ready; exec sleep 600' & exit 0`,
		"many":              `i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done; echo ready; wait`,
		"zombies":           `sh -c 'i=0; while [ $i -lt 20 ]; do true & i=$((i+1)); done; echo ready; exec sleep 600'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
				p := begin(t, w, shell(script))
				if got := line(t, p); got != "ready" {
					t.Fatalf("%q", got)
				}
				if len(processes(t, s)) == 0 {
					t.Fatal("nothing runs that could be killed")
				}
				must(t, w.KillAll(t.Context(), 50*time.Millisecond))
				if left := processes(t, s); len(left) > 0 {
					t.Errorf("processes %v are left", left)
				}
				select {
				case <-p.Done():
				default:
					t.Error("the program is not done")
				}
				must(t, w.KillAll(t.Context(), time.Minute)) // none is no error, and nothing to wait for
			})
		})
	}
}

// The program's group gets the time to end by itself, and no more.
func TestGrace(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell(`trap 'echo goodbye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`))
		line(t, p)
		must(t, w.Freeze(t.Context())) // it has to run again to end
		must(t, w.KillAll(t.Context(), bound))
		if e := p.Exit(); e != (hosted.Exit{Code: 3}) || line(t, p) != "goodbye" {
			t.Errorf("exit %+v", e)
		}
		p = begin(t, w, shell(`trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done`))
		line(t, p)
		slow := make(chan error, 1)
		go func() { slow <- w.KillAll(t.Context(), runnerproto.MaxGrace) }()
		line(t, p)                                        // it has been asked to
		must(t, w.KillAll(t.Context(), time.Millisecond)) // the shorter grace holds, for both
		must(t, <-slow)
		if e := p.Exit(); e.Signal != "SIGKILL" {
			t.Errorf("exit %+v", e)
		}
	})
}

// A fork bomb loses.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	// They multiply and change places all the time; the bound keeps the machine usable
	// if the runner is wrong.
	bomb := `ulimit -u 300 2>/dev/null || ulimit -p 300; echo ready
exec perl -e '$SIG{TERM} = "IGNORE"; for (;;) { my $p = fork; if (!defined $p) { select undef, undef, undef, 0.002 } elsif ($p && rand() < 0.3 && fork) { exit } }'`
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		apart(t, w) // or the bound would count the test's own processes
		p := begin(t, w, shell(bomb))
		line(t, p)
		waittest.Until(t, "many processes", func() bool { return len(processes(t, s)) > 100 })
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		must(t, w.KillAll(ctx, 10*time.Millisecond))
		if left := processes(t, s); len(left) > 0 {
			t.Errorf("%d processes are left", len(left))
		}
		if got := output(t, w, "echo still works"); got != "still works\n" {
			t.Errorf("%q", got)
		}
	})
}

// The end of the worker is the end of everything, and the next worker finds
// nothing of it.
func TestWorkerVanishes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		put(t, w, hosted.File{Path: hosted.Home + "/deep/secret", ReadOnly: true}, "of the first")
		p := begin(t, w, shell(`trap '' TERM; echo mine > left; echo mine > "$TMPDIR/left"; setsid sleep 600 & echo ready; while :; do sleep 600; done`))
		line(t, p)
		must(t, w.Close())
		if e := ended(t, p); e != (hosted.Exit{Code: -1}) {
			t.Errorf("exit %+v", e)
		}
		next, err := runnerclient.Dial(t.Context(), s.Address)
		must(t, err)
		defer func() { must(t, next.Close()) }()
		if left := processes(t, s); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
		if got := output(t, next, `ls -A "$HOME" "$TMPDIR" . | grep -v : ; touch "$HOME/x" x && echo writable`); strings.TrimSpace(got) != "writable" {
			t.Errorf("the next worker finds %q", got)
		}
		_, err = w.Limits(t.Context())
		wantCode(t, err, fault.SandboxEvicted)
	})
}

// A worker that is there is not pushed aside.
func TestOneWorker(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	w := s.Dial(t)
	_, err := runnerclient.Dial(t.Context(), s.Address)
	wantCode(t, err, fault.SandboxNotReady)
	if got := output(t, w, "echo untouched"); got != "untouched\n" {
		t.Errorf("%q", got)
	}
}

// A runner that is gone is an answer, not a wait.
func TestRunnerVanishes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell("echo ready; exec sleep 600"))
		line(t, p)
		read := make(chan error, 1)
		go func() {
			_, err := p.Stdout().Read(make([]byte, 1))
			read <- err
		}()
		children := processes(t, s)
		must(t, s.Process.Kill())
		wantCode(t, <-read, fault.SandboxEvicted) // and not io.EOF
		ended(t, p)
		<-w.Gone()
		for name, err := range map[string]error{
			"kill":   w.KillAll(t.Context(), time.Hour),
			"freeze": w.Freeze(t.Context()),
			"reset":  w.Reset(t.Context()),
			"write":  w.WriteFile(t.Context(), hosted.File{Path: hosted.Home + "/x"}, strings.NewReader("x")),
		} {
			if !fault.Is(err, fault.SandboxEvicted) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := w.Start(t.Context(), shell("true"))
		wantCode(t, err, fault.SandboxEvicted)
		// The program is told to go with the runner, wherever that ran.
		waittest.Until(t, "the end of the program", func() bool {
			for _, pid := range children {
				if b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); err == nil && strings.Contains(string(b), "sleep") {
					return false
				}
			}
			return true
		})
	})
}

// SIGTERM ends a runner with everything in its world.
func TestEndsCleanly(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell("trap '' TERM; echo ready; while :; do sleep 600; done"))
		line(t, p)
		must(t, s.Process.Signal(unix.SIGTERM))
		if state := s.Wait(t); !state.Success() {
			t.Errorf("runner: %v", state)
		}
		ended(t, p)
	})
}
