//go:build linux

package lastwords

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/witness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build makes the worker that crashes, and the runner beside it. Programs with the race
// detector are of another kind, whose threads are libc's.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "crash")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./testdata/crash")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.Link(program, filepath.Join(dir, "runner")); err != nil {
		t.Fatal(err)
	}
	return program
}

// A worker that is refused a thread leaves word of it, as process 1 too, whose end is that
// of its witness; one that ends otherwise leaves none.
func TestLastWords(t *testing.T) {
	program := build(t)
	for how, want := range map[string]string{"threads": witness.PIDs, "panic": "", "nothing": ""} {
		for _, first := range []bool{false, true} {
			name := how
			if first {
				name += " as process 1"
			}
			t.Run(name, func(t *testing.T) {
				if first && os.Getuid() != 0 {
					t.Skip("NOT TESTED: a namespace of processes takes root")
				}
				log := filepath.Join(t.TempDir(), "termination-log")
				if err := os.WriteFile(log, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), program, how, log)
				if first {
					cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
				}
				stderr := &strings.Builder{}
				cmd.Stderr = stderr // with it, Wait waits for the witness, who has it too
				err := cmd.Run()
				code := 2
				if how == "nothing" {
					code = 0
				}
				if cmd.ProcessState.ExitCode() != code {
					t.Fatalf("it ended with %v: %s", err, stderr)
				}
				said, err := os.ReadFile(log)
				if err != nil || string(said) != want {
					t.Errorf("left %q, %v, want %q; its log: %.2000s", said, err, want, stderr)
				}
			})
		}
	}
}

func TestALogThatIsNotThere(t *testing.T) {
	if err := Leave(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
