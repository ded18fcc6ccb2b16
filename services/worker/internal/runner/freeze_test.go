//go:build linux

package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// What is frozen does nothing; what is thawed goes on.
func TestFreeze(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t) // whose files the test can see
	w := s.Dial(t)
	count := filepath.Join(s.Workspace, "count")
	size := func() int64 {
		info, err := os.Stat(count)
		must(t, err)
		return info.Size()
	}
	p := begin(t, w, shell(`for i in 1 2 3 4; do setsid sh -c 'while :; do printf x >> count; done' & done; echo ready; wait`))
	line(t, p)
	waittest.Until(t, "something is written", func() bool { _, err := os.Stat(count); return err == nil && size() > 10 })
	for range 20 {
		must(t, w.Freeze(t.Context()))
		must(t, w.Freeze(t.Context())) // twice is harmless
		before := size()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		<-ctx.Done() // nothing is waited for: nothing happens in this time
		cancel()
		if after := size(); after != before {
			t.Fatalf("%d bytes were written by what is frozen", after-before)
		}
		must(t, w.Thaw(t.Context()))
		waittest.Until(t, "it goes on", func() bool { return size() > before })
	}
	must(t, w.Freeze(t.Context()))
	must(t, w.KillAll(t.Context(), 0))
	if got := output(t, w, "echo a new program runs"); got != "a new program runs\n" {
		t.Errorf("%q", got)
	}
	must(t, w.Freeze(t.Context())) // no process is no error
	must(t, w.Thaw(t.Context()))
}

// Every process is stopped when Freeze returns, also the busy ones.
func TestFreezeSeesEveryProcess(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell(`i=0; while [ $i -lt 30 ]; do sh -c 'while :; do :; done' & i=$((i+1)); done; echo ready; wait`))
		line(t, p)
		must(t, w.Freeze(t.Context()))
		pids := processes(t, s)
		if len(pids) < 31 {
			t.Fatalf("%d processes", len(pids))
		}
		if !stopped(t, pids) {
			t.Error("not every process is stopped")
		}
	})
}

// Shells and runtimes start programs by vfork, in which a parent cannot be stopped:
// that happens to be under way now and then, and does not keep a world from being
// frozen.
func TestFreezeWithinVfork(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell(`for i in 1 2 3 4 5 6; do sh -c 'while :; do /bin/true; done' & done; echo ready; wait`))
		line(t, p)
		for range 20 {
			must(t, w.Freeze(t.Context()))
			must(t, w.Thaw(t.Context()))
		}
	})
}

// A kill does not wait for a freeze that cannot succeed.
func TestKillEndsFreeze(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("NOT TESTED: the program names system calls by their numbers")
	}
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		// A parent that waits in vfork runs in the kernel until its child goes on.
		p := begin(t, w, hosted.Command{Path: "perl", Args: []string{"-e", `my $m = "ready\n"; if (syscall(58) == 0) { syscall(1, 1, $m, 6); syscall(34) while 1 }`}})
		line(t, p)
		frozen := make(chan error, 1)
		go func() { frozen <- w.Freeze(t.Context()) }()
		select {
		case err := <-frozen:
			t.Fatalf("it was frozen: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		begun := time.Now()
		must(t, w.KillAll(t.Context(), 0))
		if took := time.Since(begun); took > 9*time.Second { // the freeze goes on for ten
			t.Errorf("it took %v", took)
		}
		if err := <-frozen; err == nil {
			t.Error("what cannot be frozen was frozen")
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		must(t, w.Freeze(ctx))
	})
}

// Nothing is archived while something runs.
func TestArchiveWantsQuiet(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		put(t, w, hosted.File{Path: hosted.Home + "/state/f"}, "x")
		p := begin(t, w, shell("setsid sleep 600 & echo ready; exit"))
		line(t, p)
		ended(t, p)
		_, err := pack(t, w, "state")
		wantCode(t, err, fault.Protocol)
		err = w.Restore(t.Context(), strings.NewReader(""))
		wantCode(t, err, fault.Protocol)
		must(t, w.Freeze(t.Context()))
		_, err = pack(t, w, "state")
		must(t, err)
		must(t, w.Thaw(t.Context()))
		_, err = pack(t, w, "state")
		wantCode(t, err, fault.Protocol)
		must(t, w.KillAll(t.Context(), 0))
		_, err = pack(t, w, "state")
		must(t, err)
	})
}

// While an archive is made nothing can be let run, and a kill does not let the
// program run once more.
func TestArchiveKeepsQuiet(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell(`trap 'echo late; exit 0' TERM; head -c 8000000 /dev/urandom > "$HOME/large"; echo ready; while :; do sleep 0.01; done`))
		line(t, p)
		must(t, w.Freeze(t.Context()))
		slow := &gate{reached: make(chan struct{}), open: make(chan struct{})}
		archived := make(chan error, 1)
		go func() {
			archived <- w.Archive(t.Context(), hosted.Paths{Include: []string{"large"}}, 16<<20, slow)
		}()
		<-slow.reached
		wantCode(t, w.Thaw(t.Context()), fault.Protocol)
		wantCode(t, w.Reset(t.Context()), fault.Protocol)
		wantCode(t, w.ResetHome(t.Context()), fault.Protocol)
		must(t, w.KillAll(t.Context(), time.Minute))
		if e := p.Exit(); e.Signal != "SIGKILL" {
			t.Errorf("the program ran again: %+v", e)
		}
		_, err := w.Start(t.Context(), shell("true"))
		wantCode(t, err, fault.Protocol)
		close(slow.open)
		must(t, <-archived)
	})
}

// gate is a writer that takes in nothing until it is opened.
type gate struct {
	reached, open chan struct{}
	passed        bool
}

func (g *gate) Write(p []byte) (int, error) {
	if !g.passed {
		g.passed = true
		close(g.reached)
		<-g.open
	}
	return len(p), nil
}
