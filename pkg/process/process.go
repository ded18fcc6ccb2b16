//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// outputDelay is how long the output of a child may stay open after its group was killed: only something that left
	// the group can hold it.
	outputDelay = time.Second
	// killDelay is how long the kernel may take to end a group that was killed. A process in uninterruptible sleep can
	// take longer.
	killDelay = 10 * time.Second
)

// ErrExited says that there is no process left to signal.
var ErrExited = errors.New("process: already exited")

// ExitError says how a child ended, if not with exit status 0. It is never wrapped around a program's name, its
// arguments or its output, which may be secret.
type ExitError struct {
	// Code is the exit status, or -1 if a signal ended the child.
	Code int
	// Signal ended the child, or is 0.
	Signal syscall.Signal
}

// Error says how the child ended.
func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("process: ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("process: exit status %d", e.Code)
}

// Process is a child that was started. Its methods can be called from any goroutine, in any order, more than once.
type Process struct {
	pid  int
	done chan struct{}
	err  error // how it ended; written before done closes

	mu     sync.Mutex
	reaped bool // the pid may belong to somebody else
}

// Start starts a child. When ctx ends, the child and its group are killed without notice; nothing is started if it has
// ended already.
//
// A goroutine waits for the child and reaps it. It ends with the child: whoever starts a child sees to it that Done is
// closed in the end, by Stop or by ctx.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	cmd, err := spec.command()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("process: not started: %w", err)
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(ctx, cmd, spec.NoNewPrivileges, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run is the one goroutine of a child: it forks, waits and reaps.
//
// It keeps its thread for as long as the child lives. The kernel sends the parent-death signal when the THREAD that
// forked ends, not the process; and the Go runtime ends threads as it likes, for one when a goroutine that is locked to
// its thread returns. Forked from just any goroutine, a healthy child could be killed because of such a thread. Here
// the thread can end only after the child, or with the whole process, which is when the child shall die. Waiting blocks
// a thread in any case, so this costs nothing.
func (p *Process) run(ctx context.Context, cmd *exec.Cmd, noNewPrivileges bool, started chan<- error) {
	runtime.LockOSThread()
	if !noNewPrivileges {
		defer runtime.UnlockOSThread()
	}

	err := closeOnExec()
	if err == nil && noNewPrivileges {
		// It is of the thread, cannot be taken back, and is inherited. The thread stays locked, so that the runtime ends
		// it with this goroutine and gives it to no other.
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- fmt.Errorf("process: start: %w", err)
		return
	}
	p.pid = cmd.Process.Pid
	unwatch := context.AfterFunc(ctx, func() { _ = p.Signal(syscall.SIGKILL) })
	defer unwatch()
	started <- nil

	// Wait without reaping: as a zombie the leader keeps its pid, and with it the name of the group, from being given to
	// a stranger, who would otherwise get the signal.
	waitZombie(p.pid)
	p.mu.Lock()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // what the leader left behind; an empty group is no error of ours
	p.reaped = true
	p.mu.Unlock()

	p.err = exitError(cmd.Wait())
	close(p.done)
}

// waitZombie returns when the child has exited.
func waitZombie(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// exitError turns what os/exec says about the end of a child into an ExitError.
func exitError(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // the child ended well; something else held its output open
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("process: output: %w", err) // a writer of the caller failed
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return &ExitError{Code: -1, Signal: status.Signal()}
	}
	return &ExitError{Code: exit.ExitCode()}
}

// PID returns the process id of the child, which is also the id of its group. It names the child only until Done.
func (p *Process) PID() int { return p.pid }

// Done is closed when the child has exited, its group was killed, and its output was taken.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil before Done is closed and after a child that exited with 0. Otherwise it returns an [*ExitError], or
// the error of a writer that did not take the output.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal to the whole group, or returns [ErrExited].
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return ErrExited
	}
	if err := unix.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("process: signal: %w", err)
	}
	return nil
}

// Stop ends the child: SIGTERM to its group, SIGKILL to its group when grace has passed, and then it waits for Done.
// With a grace of 0 or less it kills at once. A child that has exited is no error; one that the kernel cannot end
// within ten seconds after SIGKILL is. How the child ended is said by Err.
func (p *Process) Stop(grace time.Duration) error {
	if grace > 0 {
		if err := p.Signal(syscall.SIGTERM); err == nil && p.doneWithin(grace) {
			return nil
		}
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrExited) {
		return err
	}
	if !p.doneWithin(killDelay) {
		return fmt.Errorf("process: %d was killed and has not ended within %s", p.pid, killDelay)
	}
	return nil
}

func (p *Process) doneWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}
