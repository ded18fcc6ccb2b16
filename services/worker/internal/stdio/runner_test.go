//go:build linux

package stdio

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
)

// behind hosts the program of a name behind a real runner, under another user if
// the test is root.
func behind(t *testing.T, r *runnertest.Stand, self, program string, c change) *stand {
	t.Helper()
	before := c.preset
	c.world, c.preset = r.Dial(t), func(p *Preset) {
		p.Command = self
		if before != nil {
			before(p)
		}
	}
	return newStand(t, program, c)
}

// forEverybody copies the test binary to where the program's user may start it.
func forEverybody(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	text, err := os.ReadFile(self)
	must(t, err)
	folder, err := os.MkdirTemp("", "stdio") //nolint:usetesting // the folders above t.TempDir are for nobody else
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	name := filepath.Join(folder, "program")
	must(t, errors.Join(os.Chmod(folder, 0o755), os.WriteFile(name, text, 0o755)))
	return name
}

// Behind the runner the worst programs end as they do anywhere: in one clean end
// with a code, with nothing of them left, and the same worker goes on.
func TestHostileProgramsBehindTheRunner(t *testing.T) {
	t.Parallel()
	r, self := runnertest.Start(t), forEverybody(t)
	for _, name := range []string{
		"garbage before ready", "not UTF-8", "endless line", "flood of events", "exits in a line", "closes its output", "leaves a child and ends",
	} {
		t.Run(name, func(t *testing.T) {
			s := behind(t, r, self, name, change{})
			for _, run := range []string{"run-1", "run-2"} {
				s.run(t, run, "go").wantError(t, fault.Protocol)
			}
			if s.thread.state() != "" {
				t.Error("its state was committed")
			}
		})
	}
	for _, name := range []string{"does not read", "silent in its text"} {
		t.Run(name, func(t *testing.T) {
			s := behind(t, r, self, name, change{})
			got := s.read(t, s.start(t, "run-1", "go", 2*time.Second))
			if end, ok := got.end().(event.RunCancelled); !ok || end.Reason != event.CancelledByDeadline {
				t.Errorf("ended by %#v", got.end())
			}
		})
	}
	t.Run("ignores cancel", func(t *testing.T) {
		s := behind(t, r, self, "ignores cancel", change{})
		run := s.start(t, "run-1", "go", time.Minute)
		_, err := run.Next(t.Context())
		must(t, err)
		s.Cancel(t.Context(), "run-1", event.CancelledByClient)
		got := s.read1(t, run)
		if end, ok := got.end().(event.RunCancelled); !ok || end.Reason != event.CancelledByClient {
			t.Errorf("ended by %#v", got.end())
		}
		if pids := s.processes(); len(pids) > 0 {
			t.Errorf("%d processes run after the cancel", len(pids))
		}
	})
	t.Run("leaves a child", func(t *testing.T) {
		s := behind(t, r, self, "leaves a child", change{})
		s.run(t, "run-1", "go").wantFinished(t)
		if s.thread.state() != "kept" {
			t.Errorf("state %q", s.thread.state())
		}
	})
}

// manifests of files that all hold the same.
func manifests() manifest.Manifests {
	file := func(name string) manifest.File {
		return manifest.File{Path: name, Handle: "handle", Size: 4, SHA256: sha256.Sum256([]byte("file")), MIMEType: "text/plain"}
	}
	return manifest.Manifests{Skills: []manifest.File{file("one/SKILL.md")}, Files: []manifest.File{file("a.csv")}}
}

// The manifests of a binding stand in the program's workspace in each turn. It cannot
// change them; what it has moved away as a whole is there again in the next one.
func TestManifestsBehindTheRunner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root has another user for the program")
	}
	r, self := runnertest.Start(t), forEverybody(t)
	t.Run("in each turn", func(t *testing.T) {
		s := behind(t, r, self, "manifests", change{manifests: manifests()})
		for _, run := range []string{"run-1", "run-2"} {
			got := s.run(t, run, "go")
			got.wantFinished(t)
			if got.text() != "file<nil> true true true true true file<nil> <nil>" {
				t.Errorf("%s: the program says %q", run, got.text())
			}
		}
	})
	t.Run("no turn without them", func(t *testing.T) {
		s := behind(t, r, self, "manifests", change{manifests: manifests()})
		must(t, os.RemoveAll(filepath.Join(s.workspace, manifest.Skills)))
		s.run(t, "run-1", "go").wantError(t, fault.SandboxNotReady)
	})
}
