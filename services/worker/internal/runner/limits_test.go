//go:build linux

package runner_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// What the counters of a control group say becomes the limit that ended a program,
// and is told from then on. They count from the start of the world.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]struct{ memory, pids, memoryAt, pidsAt string }{
		"version 1": {"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "max 5\n", "memory/memory.oom_control", "pids/pids.events"},
		"version 2": {"low 0\nhigh 0\nmax 9\noom 3\noom_kill 3\noom_group_kill 0\n", "max 5\n", "memory.events", "pids.events"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			memory, pids := filepath.Join(folder, files.memoryAt), filepath.Join(folder, files.pidsAt)
			for path, content := range map[string]string{memory: files.memory, pids: files.pids} {
				must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				must(t, os.WriteFile(path, []byte(content), 0o600))
			}
			s := runnertest.Start(t, "-limits", folder)
			w := s.Dial(t)
			if got := w.About().Counters; !slices.Equal(got, []string{"memory", "pids"}) {
				t.Errorf("counters %v", got)
			}
			wantLimits(t, w)
			end := func(script, path, content string) hosted.Exit {
				p := begin(t, w, shell("echo ready; read go; "+script))
				line(t, p)
				if path != "" {
					must(t, os.WriteFile(path, []byte(content), 0o600))
				}
				_, err := p.Stdin().Write([]byte("go\n"))
				must(t, err)
				return ended(t, p)
			}
			if e := end("exit 1", "", ""); e.Limit != "" {
				t.Errorf("%+v", e)
			}
			if e := end("kill -KILL $$", memory, strings.Replace(files.memory, "oom_kill 3", "oom_kill 4", 1)); e.Limit != "memory" || e.Signal != "SIGKILL" {
				t.Errorf("%+v", e)
			}
			wantLimits(t, w, "memory")
			if e := end("exit 1", "", ""); e.Limit != "" { // that was the program before
				t.Errorf("%+v", e)
			}
			if e := end("exit 1", pids, "max 6\n"); e.Limit != "pids" {
				t.Errorf("%+v", e)
			}
			if e := end("exit 0", pids, "max 7\n"); e.Limit != "" { // it came to its end
				t.Errorf("%+v", e)
			}
			wantLimits(t, w, "memory", "pids")
		})
	}
}

func wantLimits(t *testing.T, w *runnerclient.World, want ...string) {
	t.Helper()
	got, err := w.Limits(t.Context())
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
}

// A program that uses up its processor time ends by that limit, also where it is
// not the first process.
func TestProcessorLimit(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		wantLimits(t, w)
		if e := ended(t, begin(t, w, shell("ulimit -S -t 1; exec sh -c 'while :; do :; done'"))); e.Limit != "cpu" {
			t.Errorf("exit %+v", e)
		}
		wantLimits(t, w, "cpu")
	})
}
