package procs_test

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/procs"
)

// TestMain lets the test binary be a program that waits for the end of its input.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

// program starts the test binary; end lets it end and gives it to Wait.
func program(t *testing.T, dir string, args ...string) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"wait"}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"CANARY=bird"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { _ = in.Close(); _ = cmd.Wait() }
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

func TestAProcessIsSeenUntilItEnds(t *testing.T) {
	pid, end := program(t, t.TempDir(), "a b", "")
	p, err := procs.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.Parent != os.Getpid() || !slices.Equal(p.Args[1:], []string{"wait", "a b", ""}) || p.Program() != filepath.Base(os.Args[0]) {
		t.Errorf("%s, parent %d", p, p.Parent)
	}
	if env, err := procs.Environment(pid); err != nil || !slices.Equal(env, []string{"CANARY=bird"}) {
		t.Errorf("environment %q, %v", env, err)
	}
	if files, err := procs.Files(pid); err != nil || !strings.HasPrefix(files[0], "pipe:") {
		t.Errorf("files %v, %v", files, err)
	}
	if !p.Alive() {
		t.Error("not alive")
	}
	end()
	if p.Alive() {
		t.Error("still alive")
	}
	if _, err := procs.Read(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read after the end: %v", err)
	}
}

// A zombie does nothing any more.
func TestWhatNobodyWaitedForIsNotAlive(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "wait") // its input is at its end
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := procs.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(out); err != nil { // closed by the kernel as it ends
		t.Fatal(err)
	}
	for p.Alive() { // it may be a moment from exit to zombie
		if t.Context().Err() != nil {
			t.Fatal("alive to the end")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestWhatBelongsToAFolderIsFound(t *testing.T) {
	folder := t.TempDir()
	byArgument, _ := program(t, t.TempDir(), "--store="+folder+"/state")
	byFolder, _ := program(t, folder)
	other, _ := program(t, t.TempDir(), folder+"-other/state")
	found, err := procs.Of(0x7ffffff0, folder)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range found {
		pids = append(pids, p.PID)
	}
	if !slices.Contains(pids, byArgument) || !slices.Contains(pids, byFolder) || slices.Contains(pids, other) {
		t.Errorf("found %v, want %d and %d without %d", pids, byArgument, byFolder, other)
	}
	descendants, err := procs.Of(os.Getpid(), folder)
	if err != nil || len(descendants) < 3 {
		t.Errorf("descendants %v, %v", descendants, err)
	}
}

func TestWhatAProcessHoldsIsFound(t *testing.T) {
	secret := "held-" + rand.Text()
	pid, _ := program(t, t.TempDir(), secret)
	found, err := procs.Holds(pid, secret, "not-held-"+rand.Text())
	if err != nil || !slices.Equal(found, []string{secret}) {
		t.Errorf("found %q, %v", found, err)
	}
}

func TestWhereAProcessListensIsFound(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		found, err := procs.Listeners(os.Getpid())
		if err != nil || len(found) != 1 || found[0].String() != l.Addr().String() {
			t.Errorf("found %v, %v; want %v", found, err, l.Addr())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
