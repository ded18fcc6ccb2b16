package stack_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// refuseTimeout bounds how long a start may take to see that it must not be.
const refuseTimeout = 60 * time.Second

// refused runs `cofferdam` where it must not start, and gives what it said.
func refused(t *testing.T, args ...string) (said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), refuseTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, stack.Need(t), args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var status *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &status) || !status.Exited() || ctx.Err() != nil {
		t.Errorf("%v: ended with %v, want an exit status that is not 0; it said:\n%s", args, err, stderr.String())
	}
	if stdout.Len() > 0 {
		t.Errorf("%v: wrote to stdout: %q", args, stdout.String())
	}
	if strings.Contains(stderr.String(), "goroutine ") {
		t.Errorf("%v: panicked:\n%s", args, stderr.String())
	}
	return stderr.String()
}

// Without the flag nobody runs agents in sandboxes that are none by accident.
func TestUpRefusesWeakIsolationAndNamesWhatIsMissing(t *testing.T) {
	data := folder(t)
	said := refused(t, "up", "--listen", "127.0.0.1:0", "--data", data)
	for _, layer := range []string{
		"user namespace", "pid namespace", "mount namespace", "network namespace", "ipc namespace", "uts namespace",
		"no-new-privileges", "seccomp", "Landlock", "cgroup", "--allow-weak-isolation",
	} {
		if !strings.Contains(said, layer) {
			t.Errorf("it does not name %q; it said:\n%s", layer, said)
		}
	}
	if left, err := procs.Of(-1, data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheMissingLayersAreNamedAlsoWhereTheyAreAllowed(t *testing.T) {
	s := up(t, folder(t))
	for _, layer := range []string{"seccomp", "Landlock", "network namespace"} {
		if !strings.Contains(s.Said(), layer) {
			t.Errorf("it does not name %q; it said:\n%s", layer, s.Said())
		}
	}
	// One stack a folder: the second says who has it.
	said := refused(t, "up", "--listen", "127.0.0.1:0", "--data", s.Data, "--allow-weak-isolation")
	if !strings.Contains(said, "in use by process") {
		t.Errorf("a second stack in the folder said:\n%s", said)
	}
	// And one listener an address.
	said = refused(t, "up", "--listen", strings.TrimPrefix(s.API, "http://"), "--data", folder(t), "--allow-weak-isolation")
	if !strings.Contains(said, "--listen") {
		t.Errorf("a second stack at the address said:\n%s", said)
	}
	turn(t, s, "c-1", "still there?")
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWrongFlagsAreRefusedBeforeAnythingStarts(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no command":         {nil, "up"},
		"unknown command":    {[]string{"swim"}, "swim"},
		"unknown flag":       {[]string{"up", "--nonsense"}, "nonsense"},
		"another machine":    {[]string{"up", "--listen", "0.0.0.0:0", "--allow-weak-isolation"}, "loopback"},
		"no address":         {[]string{"up", "--listen", "here", "--allow-weak-isolation"}, "--listen"},
		"no data folder":     {[]string{"token", "--subject", "user-1"}, "cofferdam up"},
		"token for nobody":   {[]string{"token"}, "subject"},
		"left over argument": {[]string{"up", "--allow-weak-isolation", "now"}, "now"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			args := c.args
			if len(args) > 0 && (args[0] == "up" || args[0] == "token") {
				args = append([]string{args[0], "--data", folder(t)}, args[1:]...)
			}
			if said := refused(t, args...); !strings.Contains(said, c.says) {
				t.Errorf("it does not say %q but:\n%s", c.says, said)
			}
		})
	}
}
