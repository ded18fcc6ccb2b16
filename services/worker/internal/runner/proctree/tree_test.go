//go:build linux

package proctree

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const headless = "COFFERDAM_PROCTREE_HEADLESS"

func TestMain(m *testing.M) {
	if os.Getenv(headless) != "" {
		loseHead()
	}
	goleak.VerifyTestMain(m)
}

// loseHead ends the first thread of the process, which goes on writing.
func loseHead() {
	go func() {
		for {
			if _, err := os.Stdout.WriteString("x\n"); err != nil {
				os.Exit(0)
			}
		}
	}()
	for unix.Gettid() != unix.Getpid() { // the first thread, wherever it is
		go loseHead()
		runtime.LockOSThread()
		select {}
	}
	runtime.LockOSThread()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// A process whose first thread has ended looks like a zombie, and runs.
func TestHeadless(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{headless + "=1"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it does not end by itself
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	find := func() (p Process, state byte) {
		t.Helper()
		found, whole, err := tree.Scan()
		if err != nil || !whole {
			t.Fatal(whole, err)
		}
		for _, p := range found {
			if p.PID == cmd.Process.Pid {
				s, err := readStat(fmt.Sprintf("/proc/%d/stat", p.PID))
				if err != nil {
					t.Fatal(err)
				}
				return p, s.state
			}
		}
		t.Fatal("not found")
		return Process{}, 0
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !ok(); {
			if time.Now().After(until) {
				t.Fatalf("never: %s", what)
			}
			lines.Scan() // it goes on only while it is read
		}
	}
	look := func() Glimpse {
		t.Helper()
		p, _ := find()
		g, err := p.Look()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	wait("the first thread ends", func() bool { _, state := find(); return state == 'Z' })
	if p, _ := find(); p.Still {
		t.Error("it is taken for one that does nothing")
	}
	wait("a look at it awake", func() bool { return look().Awake })
	p, _ := find()
	if err := p.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); !p.Still; p, _ = find() {
		if time.Now().After(until) {
			t.Fatal("it is never still")
		}
	}
	// It leaves the processor a moment after it shows as stopped.
	before := look()
	for until := time.Now().Add(time.Minute); ; {
		<-time.After(50 * time.Millisecond) // in which nothing may happen
		now := look()
		if now == before {
			break
		}
		if before = now; time.Now().After(until) {
			t.Fatal("what is stopped goes on")
		}
	}
	if before.Awake || before.Gone || before.Switches == 0 {
		t.Errorf("stopped: %+v", before)
	}
	if err := p.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait("it is awake again", func() bool { return look().Switches > before.Switches })
	other := p
	other.start++
	if g, err := other.Look(); err != nil || !g.Gone {
		t.Errorf("one whose number another has: %+v, %v", g, err)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); !look().Gone; { // not reaped yet
		if time.Now().After(until) {
			t.Fatal("it does not end")
		}
	}
}
