//go:build linux

package runner

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner is the thread that programs are started from. It cannot get privileges
// any more, so that nothing that it starts can; and programs are told to end when
// it does, which is when the process does.
type spawner struct {
	jobs  chan func()
	ended chan struct{}
}

// newSpawner readies the thread. It ends with close.
func newSpawner(apart bool) (*spawner, error) {
	s := &spawner{jobs: make(chan func()), ended: make(chan struct{})}
	ready := make(chan error)
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		err := restrict(apart)
		ready <- err
		if err != nil {
			return
		}
		for job := range s.jobs {
			job()
		}
	}()
	return s, <-ready
}

func (s *spawner) close() {
	close(s.jobs)
	<-s.ended
}

// restrict takes from the calling thread what programs shall not have.
func restrict(apart bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	for i := range caps {
		caps[i].Inheritable = 0
		if !apart { // a program that is root keeps what its parent has
			caps[i].Permitted, caps[i].Effective = 0, 0
		}
	}
	head.Pid = 0
	if err := unix.Capset(&head, &caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// run starts a program on the thread.
func (s *spawner) run(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	done := make(chan struct{})
	s.jobs <- func() {
		defer close(done)
		pid, err = syscall.ForkExec(path, args, attr) //nolint:gosec // what the worker asked for
	}
	<-done
	return pid, err
}
