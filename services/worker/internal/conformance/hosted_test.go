package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	worlds "cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// build builds a program of the suite where the user of a world may start it.
func build(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(forEverybody(t), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, "./internal/"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return file
}

// forEverybody is a folder that the user of a world may enter.
func forEverybody(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "program") //nolint:usetesting // the folders above t.TempDir are for nobody else
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// runners are real runners in which the workers of a test take turns: a worker has
// one to itself, and the next one gets it emptied.
type runners struct {
	t *testing.T

	mu   sync.Mutex
	free []*runnertest.Stand
}

// world is that of a runner which nobody else has, until the end of a test.
func (r *runners) world(t *testing.T) worlds.World {
	t.Helper()
	s := r.take()
	t.Cleanup(func() { r.give(s) }) // after the connection was closed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		w, err := runnerclient.Dial(ctx, s.Address)
		switch {
		case err == nil:
			t.Cleanup(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
			return w
		case ctx.Err() != nil: // what the worker before has left is still being ended on a busy machine
			t.Fatalf("%v\n%s", err, s.Log)
		}
	}
}

func (r *runners) take() *runnertest.Stand {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		s := r.free[n-1]
		r.free = r.free[:n-1]
		return s
	}
	if os.Geteuid() != 0 { // nobody else can give a world two users
		return runnertest.Start(r.t)
	}
	return runnertest.StartNested(r.t)
}

func (r *runners) give(s *runnertest.Stand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, s)
}
