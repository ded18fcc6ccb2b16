//go:build linux

// Package runnertest runs real runners for tests: the test binary itself, started
// again. A package that uses it calls [Main] first of all in its TestMain.
package runnertest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runner"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// role tells a test binary that was started again what it is.
const (
	role       = "COFFERDAM_RUNNERTEST_ROLE"
	roleRunner = "runner"
	roleNest   = "nest"
)

// Main ends the process when it was started to be a runner. Else it does nothing.
func Main() {
	switch os.Getenv(role) {
	case roleRunner:
		go endWithTest()
		os.Exit(runner.Main(os.Args[1:], os.Stderr)) //nolint:forbidigo // it is a command here
	case roleNest:
		os.Exit(nest(os.Args[1:])) //nolint:forbidigo // as above
	}
}

// endWithTest ends a runner whose test is gone, however that ended: the test holds
// the other end of its standard input.
func endWithTest() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = unix.Kill(os.Getpid(), unix.SIGTERM) // as anybody would end it
}

// Stand is a runner and the folders of its world.
type Stand struct {
	// Address to dial.
	Address string
	// Folders of the program as the test sees them. In a nested world they are empty:
	// the program sees others under the same names.
	Home, Workspace, Temp string
	// Log is what the runner wrote, what its programs wrote to standard error among
	// it.
	Log *Log
	// Process of the runner.
	Process *os.Process

	exited chan struct{}
	state  *os.ProcessState // after exited
}

// endTimeout bounds how long a runner may take to end.
const endTimeout = 30 * time.Second

// Start starts a runner without a world of its own: the processes and files of its
// programs are among the test's, under another user if the test is root.
func Start(t testing.TB, flags ...string) *Stand {
	t.Helper()
	return start(t, roleRunner, nil, flags)
}

// StartNested starts a runner that is process 1 of its own pid, user and mount
// namespaces, with the six capabilities that it needs and a tmpfs of 16 MiB for
// each folder. It needs a test that is root.
func StartNested(t testing.TB, flags ...string) *Stand {
	t.Helper()
	const ids = 65534
	return start(t, roleNest, &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: ids}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: ids}},
		GidMappingsEnableSetgroups: true,
	}, flags)
}

func start(t testing.TB, as string, attr *syscall.SysProcAttr, flags []string) *Stand {
	t.Helper()
	base := folder(t)
	s := &Stand{
		Address: "unix://" + filepath.Join(base, "runner", "s"),
		Home:    filepath.Join(base, "home"), Workspace: filepath.Join(base, "workspace"), Temp: filepath.Join(base, "temp"),
		Log: &Log{}, exited: make(chan struct{}),
	}
	must(t, os.Mkdir(filepath.Join(base, "runner"), 0o770)) // the program's user is neither
	for _, f := range []string{s.Home, s.Workspace, s.Temp} {
		must(t, os.Mkdir(f, 0o755)) // the runner gives it away
	}
	self, err := os.Executable()
	must(t, err)
	left, err := os.Open(base)
	must(t, err)
	defer func() { _ = left.Close() }() // was not even read
	flags = append([]string{
		"-listen", s.Address, "-home", s.Home, "-workspace", s.Workspace, "-temp", s.Temp, "-limits", filepath.Join(base, "limits"),
	}, flags...)
	cmd := exec.Command(self, flags...) //nolint:noctx // the test binary; it is ended by the cleanup, which looks how it ends
	cmd.Env = []string{role + "=" + as, "GORACE=atexit_sleep_ms=0 halt_on_error=1"}
	cmd.Stderr = s.Log
	cmd.ExtraFiles = []*os.File{left} // as somebody before it could have left it open
	cmd.SysProcAttr = attr
	_, err = cmd.StdinPipe() // closed by Wait, or by our own end
	must(t, err)
	must(t, cmd.Start())
	s.Process = cmd.Process
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(s.exited)
		err := cmd.Wait()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			_, _ = s.Log.Write([]byte("wait: " + err.Error())) // never fails
		}
		s.state = cmd.ProcessState
	})
	t.Cleanup(func() {
		s.end(t)
		wg.Wait()
	})
	return s
}

// folder is one that other users may enter, with a name short enough for a socket.
func folder(t testing.TB) string {
	t.Helper()
	base, err := os.MkdirTemp("", "rt") //nolint:usetesting // t.TempDir's names are too long for a socket
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	must(t, os.Chmod(base, 0o755)) // for the program's user
	return base
}

// Dial connects to the runner, for as long as the test takes.
func (s *Stand) Dial(t testing.TB) *runnerclient.World {
	t.Helper()
	// Many workers come here one after the other, which no runner in use ever sees: on a
	// busy machine the world of the one before may take longer to empty than the runner
	// lets the next one wait.
	w, err := runnerclient.Dial(t.Context(), s.Address)
	for late := time.Now().Add(endTimeout); err != nil && strings.Contains(err.Error(), "another worker is connected") && time.Now().Before(late); {
		w, err = runnerclient.Dial(t.Context(), s.Address)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Log)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Wait waits for the end of the runner and says how it ended.
func (s *Stand) Wait(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-s.exited:
	case <-time.After(endTimeout):
		t.Fatalf("the runner has not ended\n%s", s.Log)
	}
	return s.state
}

func (s *Stand) end(t testing.TB) {
	t.Helper()
	_ = s.Process.Signal(unix.SIGTERM) // it may have ended
	select {
	case <-s.exited:
	case <-time.After(endTimeout):
		t.Error("the runner does not end")
		_ = s.Process.Kill()
		<-s.exited
	}
	if t.Failed() {
		t.Logf("runner:\n%s", s.Log)
	}
	// A runner that the test killed says nothing; a race in it does.
	if code := s.state.ExitCode(); code > 0 {
		t.Errorf("runner: exit code %d\n%s", code, s.Log)
	}
}

// Log is what a runner wrote.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*Log)(nil)

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
