//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds a wait for something that must come.
const patience = time.Minute

// weakVariable, set to 1, lets a build machine leave out what it does not allow.
const weakVariable = "COFFERDAM_TEST_WEAK_ISOLATION"

// helperVariable makes the test binary a process that is to be bounded.
const helperVariable = "CGROUP_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperVariable); mode != "" {
		os.Exit(helper(mode))
	}
	goleak.VerifyTestMain(m)
}

// helper waits for a byte, by when it is in its group, and misbehaves.
func helper(mode string) int {
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return 2
	}
	switch mode {
	case "hog":
		return hog()
	case "hog-child": // whose parent could go on
		cmd := again1("hog")
		_ = cmd.Run()
		fmt.Println("the child was killed")
		idle()
	case "bomb":
		return bomb(2000)
	case "crowd":
		return bomb(crowd)
	case "take":
		fmt.Println(len(take(taken)))
		idle()
	case "burn":
		return burn()
	case "spin":
		return spin()
	case "idle":
		fmt.Println("idle")
		idle()
	case "owner":
		return owner()
	}
	return 0
}

// again1 is another process like this one, which has its byte already.
func again1(mode string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Env = []string{helperVariable + "=" + mode}
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	_, _ = w.Write([]byte{1})
	cmd.Stdin = r
	return cmd
}

// idle ends a helper that a failing test forgot.
func idle() { <-time.After(time.Minute) }

// hog takes memory without end.
func hog() int {
	take(4 << 10)
	return 3 // 4 GiB without anybody minding
}

// take takes MiB after MiB, and uses each.
func take(mib int) (held [][]byte) {
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	return held
}

// What the helpers take where they may: MiB, and processes.
const taken, crowd = 128, 60

// bomb starts children that stay, until it has enough or is refused one, and says how
// many.
func bomb(enough int) int {
	n := 0
	for ; n < enough; n++ {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil || pid == 0 {
			break
		}
	}
	fmt.Println(n)
	idle()
	return 0
}

// spin says how many µs of processor time it got in a second and a half.
func spin() int {
	runtime.LockOSThread()
	before := used()
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
	}
	fmt.Println((used() - before).Microseconds())
	return 0
}

// burn uses a processor for ten times as long as a group may in one period of a
// hundredth of it, and says for how many µs.
func burn() int {
	runtime.LockOSThread()
	before := used()
	for used()-before < 10*time.Millisecond {
	}
	fmt.Println((used() - before).Microseconds())
	return 0
}

// used is the processor time of this process so far.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// owner makes a group with a process in it, and says where.
func owner() int {
	m, err := Open(context.Background())
	if err != nil {
		fmt.Println(err)
		return 5
	}
	g, err := m.Create("left", Limits{PIDs: 8})
	if err != nil {
		fmt.Println(err)
		return 5
	}
	child := exec.CommandContext(context.Background(), "/bin/sleep", "60")
	if err := errors.Join(child.Start(), g.Add(child.Process.Pid)); err != nil {
		fmt.Println(err)
		return 5
	}
	fmt.Println(child.Process.Pid)
	idle()
	return 0
}

// manager has every controller that this machine has, or ends the test where one
// of those that the test is about is missing.
func manager(t *testing.T, needed ...Controller) *Manager {
	t.Helper()
	m, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, missing := range m.Missing() {
		for _, c := range needed {
			if missing.Controller != c {
				continue
			}
			if os.Getenv("CI") == "true" && os.Getenv(weakVariable) != "1" {
				t.Fatalf("%s. Or set %s=1 to leave out what this machine cannot show", missing, weakVariable)
			}
			t.Skipf("NOT TESTED on this machine: %s", missing)
		}
	}
	return m
}

// group makes a group that is removed with the test, which must leave nothing.
func (m *Manager) group(t *testing.T, name string, l Limits) *Group {
	t.Helper()
	g, err := m.Create(name, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := g.Remove(ctx); err != nil {
			t.Error(err)
		}
		for _, dir := range g.Dirs() {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", dir, err)
			}
		}
	})
	return g
}

// bounded is a process in a group, or in none.
type bounded struct {
	*exec.Cmd

	out io.Reader
}

func run(t *testing.T, g *Group, mode string) *bounded {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/proc/self/exe")
	cmd.Env = []string{helperVariable + "=" + mode}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it may have been waited for
	})
	if g != nil {
		if err := g.Add(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	return &bounded{cmd, out}
}

func (b *bounded) line(t *testing.T) int {
	t.Helper()
	var n int
	if _, err := fmt.Fscanln(b.out, &n); err != nil {
		t.Fatalf("what it says: %v", err)
	}
	return n
}

// signalled gives the signal that ended a process.
func (b *bounded) signalled() syscall.Signal {
	_ = b.Wait()
	if s, ok := b.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return 0
}

func counters(t *testing.T, g *Group) Counters {
	t.Helper()
	c, err := g.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// exists reports whether there is a process that has not ended.
func exists(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return false
	}
	var id int
	var name, state string
	_, err = fmt.Sscan(string(raw), &id, &name, &state)
	return err == nil && state != "Z" && state != "X"
}
