package stack_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder is a new data folder with a short path, since sockets stand in it.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cofferdam-") //nolint:usetesting // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "data")
}

// up starts a stack in a folder of its own.
func up(t *testing.T, data string, flags ...string) *stack.Stack {
	t.Helper()
	s, err := stack.Up(t.Context(), stack.Need(t), data, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for a test that fails before it has stopped the stack itself
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// withWorker has the stack run a turn, so that there is a worker as well, and
// gives all processes.
func withWorker(t *testing.T, s *stack.Stack) []procs.Process {
	t.Helper()
	turn(t, s, "c-1", "hello")
	all, err := s.Processes()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, p := range all {
		seen[p.Program()]++
	}
	for _, name := range []string{
		"cofferdam", "cofferdam-openfga", "cofferdam-mcp-files",
		"capability", "toolbroker", "statefacade", "filebroker", "modelproxy", "controlplane", "worker",
	} {
		if seen[name] != 1 {
			t.Errorf("%d processes are %s, want 1 (all: %v)", seen[name], name, all)
		}
	}
	return all
}
