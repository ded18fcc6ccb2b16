package stack_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// refuseTimeout bounds how long a start may take to see that it must not be.
const refuseTimeout = 2 * time.Minute

// refused runs `cofferdam` where it must not start, and gives what it said.
func refused(t *testing.T, args ...string) (said string) {
	t.Helper()
	return refusedAs(t, nil, args...)
}

func refusedAs(t *testing.T, as *syscall.Credential, args ...string) (said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), refuseTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, stack.Need(t), args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
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

// nobodys is a data folder of a user who is not root, and who can start the
// programs. Such a user cannot have all layers, on any machine.
func nobodys(t *testing.T) (data string, as *syscall.Credential) {
	t.Helper()
	data = folder(t)
	if os.Geteuid() != 0 {
		return data, nil // this is one
	}
	as = &syscall.Credential{Uid: stack.Nobody, Gid: stack.Nobody}
	if err := os.Lchown(filepath.Dir(data), stack.Nobody, stack.Nobody); err != nil {
		t.Fatal(err)
	}
	help := exec.CommandContext(t.Context(), stack.Need(t), "help")
	help.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if err := help.Run(); errors.Is(err, fs.ErrPermission) {
		t.Skipf("NOT TESTED: the programs are in a folder that others than root cannot enter: %v", err)
	}
	return data, as
}

// Without the flag nobody runs agents in sandboxes that are not whole by accident.
func TestUpRefusesWeakIsolationAndNamesWhatIsMissing(t *testing.T) {
	data, as := nobodys(t)
	said := refusedAs(t, as, "up", "--listen", "127.0.0.1:0", "--data", data)
	for _, part := range []string{"uid: ", "Run it as root", "--allow-weak-isolation"} {
		if !strings.Contains(said, part) {
			t.Errorf("it does not say %q; it said:\n%s", part, said)
		}
	}
	if left, err := procs.Of(-1, data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// With the flag it starts, says what is missing, and works.
func TestTheMissingLayersAreNamedAlsoWhereTheyAreAllowed(t *testing.T) {
	data, as := nobodys(t)
	start := stack.Up
	if as != nil {
		start = stack.UpAsNobody
	}
	s, err := start(t.Context(), stack.Need(t), data, "--allow-weak-isolation")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(s.Said(), "uid: ") {
		t.Errorf("it does not name the layer uid; it said:\n%s", s.Said())
	}
	turn(t, s, "c-1", "hello")
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// One stack a folder, and one listener an address: the second says who has it.
func TestTwoStacksShareNothing(t *testing.T) {
	s := up(t, folder(t))
	said := refused(t, append([]string{"up", "--listen", "127.0.0.1:0", "--data", s.Data}, stack.Weak()...)...)
	if !strings.Contains(said, "in use by process") {
		t.Errorf("a second stack in the folder said:\n%s", said)
	}
	said = refused(t, append([]string{"up", "--listen", strings.TrimPrefix(s.API, "http://"), "--data", folder(t)}, stack.Weak()...)...)
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
		"another machine":    {[]string{"up", "--listen", "0.0.0.0:0"}, "loopback"},
		"no address":         {[]string{"up", "--listen", "here"}, "--listen"},
		"no data folder":     {[]string{"token", "--subject", "user-1"}, "cofferdam up"},
		"token for nobody":   {[]string{"token"}, "subject"},
		"left over argument": {[]string{"up", "now"}, "now"},
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
