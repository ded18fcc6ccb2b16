//go:build linux

package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/process"
)

// No child survives its parent, however that ends: the parent gets no chance to do anything about it here.
func TestKilledParentTakesChildAndGrandchildAlong(t *testing.T) {
	p, f, pids := startFamily(t, 3, spec(t, "chain", "3"))
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err != nil || group != pid {
			t.Fatalf("process %d is in group %d (%v), want its own: else this test would show nothing", pid, group, err)
		}
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil { // the parent alone
		t.Fatal(err)
	}
	f.gone(t)
}

// The kernel ties the parent-death signal to the thread that forked. A child must not die with a thread of a process
// that is well, neither that of its caller nor one that the runtime moved the fork to: threads come and go here all the
// time.
func TestChildSurvivesTheThreadsOfItsParent(t *testing.T) {
	const children = 48
	stop := make(chan struct{})
	var churn sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		churn.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var doomed sync.WaitGroup
				doomed.Go(func() { onDoomedThread(func(int) {}) })
				doomed.Wait()
			}
		})
	}
	echoes := make([]*echo, children)
	for i := range echoes {
		echoes[i] = startEcho(t)
	}
	close(stop)
	churn.Wait()
	for _, e := range echoes {
		awaitThreadEnd(t, e.thread)
	}
	for i, e := range echoes {
		if err := e.answers(); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
	}
}

// echo is a child that answers, and the thread, now doomed, that asked for it.
type echo struct {
	thread  int
	in, out *os.File
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	childIn, in, errIn := os.Pipe()
	out, childOut, errOut := os.Pipe()
	if err := errors.Join(errIn, errOut); err != nil {
		t.Fatal(err)
	}
	s := spec(t, "echo")
	s.Stdin, s.Stdout = childIn, childOut
	e := &echo{in: in, out: out}
	var (
		p      *process.Process
		err    error
		caller sync.WaitGroup
	)
	caller.Go(func() {
		onDoomedThread(func(tid int) {
			e.thread = tid
			p, err = process.Start(t.Context(), s)
		})
	})
	caller.Wait()
	if err := errors.Join(err, childIn.Close(), childOut.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Stop(0), in.Close(), out.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *echo) answers() error {
	if _, err := fmt.Fprintln(e.in, "alive?"); err != nil {
		return err
	}
	if err := e.out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err := bufio.NewReader(e.out).ReadString('\n')
	return err
}

// Whoever configures the child cannot take it out of its group or off its parent's death by accident.
func TestAttrCannotUndoTheGuarantees(t *testing.T) {
	for name, attr := range map[string]func(*syscall.SysProcAttr){
		"cleared": func(a *syscall.SysProcAttr) { a.Setpgid, a.Pdeathsig, a.Pgid = false, 0, unix.Getpgrp() },
		"session": func(a *syscall.SysProcAttr) { a.Setsid, a.Pdeathsig = true, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, "patient")
			s.Attr = attr
			p, _, _ := startFamily(t, 1, s)
			if group, err := unix.Getpgid(p.PID()); err != nil || group != p.PID() {
				t.Errorf("group is %d (%v), want that of the child", group, err)
			}
		})
	}
}

// onDoomedThread calls f on a thread that ends when the goroutine of the caller returns, with the id of that thread.
func onDoomedThread(f func(tid int)) {
	runtime.LockOSThread() // and never unlocked, which is what ends the thread
	if tid := unix.Gettid(); tid != os.Getpid() {
		f(tid)
		return
	}
	// The main thread is the one that the runtime does not end. As it is taken now, another goroutine gets another one.
	defer runtime.UnlockOSThread()
	var other sync.WaitGroup
	other.Go(func() { onDoomedThread(f) })
	other.Wait()
}

func awaitThreadEnd(t *testing.T, tid int) {
	t.Helper()
	path := fmt.Sprintf("/proc/self/task/%d", tid)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return
		}
	}
	t.Fatal("the thread has not ended")
}
