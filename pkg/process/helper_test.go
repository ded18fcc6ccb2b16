//go:build linux

package process_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/process"
)

// helperArg as first argument makes the test binary one of the programs below. It is an argument and not a variable,
// because the environment is among the things under test.
const helperArg = "process-test-helper"

// alive is the descriptor on which helpers show that they live: the reader sees its end when the last of them is gone.
const alive = 3

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperArg {
		os.Exit(helper(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

func helper(mode string, args []string) int {
	switch mode {
	case "environment":
		fmt.Print(strings.Join(os.Environ(), "\n"))
	case "descriptors":
		return printDescriptors()
	case "exit":
		code, _ := strconv.Atoi(args[0])
		return code
	case "echo":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "patient": // until it is told to end
		report()
		block()
	case "stubborn": // ignores what it is told
		signal.Ignore(syscall.SIGTERM)
		report()
		block()
	case "family": // a stubborn child in the same group, started the ordinary way
		return startOrdinary(&syscall.SysProcAttr{}, true)
	case "orphan": // leaves that child behind when its input ends
		return startOrdinary(&syscall.SysProcAttr{}, false)
	case "escape": // leaves one behind that has left the group too
		return startOrdinary(&syscall.SysProcAttr{Setsid: true}, false)
	case "chain": // starts the rest of the chain with this package
		return startChain(args[0])
	}
	return 0
}

// report writes this process's id to the descriptor alive.
func report() {
	_, _ = fmt.Fprintln(os.NewFile(alive, "alive"), os.Getpid())
}

// block ends a helper that a failing test forgot.
func block() { <-time.After(time.Minute) }

func startOrdinary(attr *syscall.SysProcAttr, stay bool) int {
	cmd := exec.CommandContext(context.Background(), os.Args[0], helperArg, "stubborn")
	cmd.ExtraFiles = []*os.File{os.NewFile(alive, "alive")}
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		return 1
	}
	if stay {
		report()
		block()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func startChain(length string) int {
	n, _ := strconv.Atoi(length)
	if n > 1 {
		_, err := process.Start(context.Background(), process.Spec{
			Path:       os.Args[0],
			Args:       []string{helperArg, "chain", strconv.Itoa(n - 1)},
			ExtraFiles: []*os.File{os.NewFile(alive, "alive")},
		})
		if err != nil {
			return 1
		}
	}
	report()
	block()
	return 0
}

func printDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 1
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		// The listing's own descriptor is closed by now; the poller and the CPU limit were opened by the helper's runtime.
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") && !strings.HasPrefix(target, "/sys/fs/cgroup/") {
			fmt.Println(e.Name(), target)
		}
	}
	return 0
}

// spec is a Spec of the test binary as a helper.
func spec(t *testing.T, mode string, args ...string) process.Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return process.Spec{Path: self, Args: append([]string{helperArg, mode}, args...), Stderr: t.Output()}
}

// start starts a child and kills it at the end of the test.
func start(t *testing.T, s process.Spec) *process.Process {
	t.Helper()
	p, err := process.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(0); err != nil {
			t.Error(err)
		}
	})
	return p
}

// family is what reported on the descriptor alive.
type family struct {
	read *os.File
	line *bufio.Reader
}

// startFamily starts a child and returns when n processes have reported.
func startFamily(t *testing.T, n int, s process.Spec) (*process.Process, *family, []int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	s.ExtraFiles = []*os.File{w}
	p := start(t, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := &family{read: r, line: bufio.NewReader(r)}
	return p, f, f.pids(t, n)
}

// pids reads the reports of n processes.
func (f *family) pids(t *testing.T, n int) []int {
	t.Helper()
	f.deadline(t)
	pids := make([]int, 0, n)
	for range n {
		line, err := f.line.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %d processes to report: %v", n, err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// gone returns when no process of the family is left.
func (f *family) gone(t *testing.T) {
	t.Helper()
	f.deadline(t)
	if rest, err := io.ReadAll(f.line); err != nil || len(rest) > 0 {
		t.Fatalf("a process of the family is still there: %q, %v", rest, err)
	}
}

func (f *family) deadline(t *testing.T) {
	t.Helper()
	if err := f.read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
}

// finished waits for the end of a child and returns how it ended.
func finished(t *testing.T, p *process.Process) error {
	t.Helper()
	select {
	case <-p.Done():
		return p.Err()
	case <-time.After(time.Minute):
		t.Fatal("the child has not ended")
		return nil
	}
}
