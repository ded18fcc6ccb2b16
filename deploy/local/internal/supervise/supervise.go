package supervise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"cofferdam.dev/pkg/process"
)

// Config of a child.
type Config struct {
	// Spec of every life. Its files belong to the caller and stay open until Stop
	// has returned.
	Spec process.Spec
	// Ready returns nil once the child answers; it is asked in the first life only
	// and must end with its context.
	Ready func(ctx context.Context) error
	// Ended is told of each life that ended by itself, before the pause; nil is
	// told nothing. It is called from the child's own goroutine.
	Ended   func(End)
	Backoff Backoff
}

// End is how one life ended.
type End struct {
	// Err is nil after exit status 0, else a *process.ExitError, or why the child
	// could not be started.
	Err error
	// Lived is how long it was there, and Pause how long until the next life.
	Lived, Pause time.Duration
}

// ExitedError says that a child ended before it was ready.
type ExitedError struct {
	// How it ended; nil after exit status 0.
	How error
}

// Error says how it ended.
func (e *ExitedError) Error() string {
	if e.How == nil {
		return "ended with exit status 0 before it was ready"
	}
	return fmt.Sprintf("ended before it was ready: %v", e.How)
}

// Unwrap gives how it ended.
func (e *ExitedError) Unwrap() error { return e.How }

// Child is a process that is kept running. Its methods can be called from any
// goroutine.
type Child struct {
	cfg     Config
	life    context.Context //nolint:containedctx // of the processes, which outlive Start
	end     context.CancelFunc
	stopped chan struct{} // closed by Stop
	keeping sync.WaitGroup

	mu      sync.Mutex
	current *process.Process // nil between two lives
	closed  bool
}

// Start starts a child, waits until it is ready, and keeps it running from then
// on, until Stop. ctx bounds the wait alone. Errors: *ExitedError if the child
// ended first, that of Ready, and why it could not be started; nothing runs then.
func Start(ctx context.Context, cfg Config) (*Child, error) {
	cfg.Backoff = cfg.Backoff.withDefaults()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	c := &Child{cfg: cfg, life: life, end: end, stopped: make(chan struct{})}
	p, err := process.Start(life, cfg.Spec)
	if err != nil {
		end()
		return nil, err
	}
	begun := time.Now()
	if err := c.waitReady(ctx, p); err != nil {
		err = errors.Join(err, p.Stop(0))
		end()
		return nil, err
	}
	c.current = p
	c.keeping.Go(func() { c.keep(p, begun) })
	return c, nil
}

// waitReady waits for the first of readiness and end.
func (c *Child) waitReady(ctx context.Context, p *process.Process) error {
	if c.cfg.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	var asking sync.WaitGroup
	asking.Go(func() { ready <- c.cfg.Ready(ctx) })
	defer asking.Wait()
	select {
	case err := <-ready:
		return err
	case <-p.Done():
		cancel()
		return &ExitedError{How: p.Err()}
	}
}

// keep starts the child again for as long as it is not stopped.
func (c *Child) keep(p *process.Process, begun time.Time) {
	var pause time.Duration
	for {
		<-p.Done()
		end := End{Err: p.Err(), Lived: time.Since(begun)}
		if c.over() {
			return
		}
		for p = nil; p == nil; {
			pause = c.cfg.Backoff.next(pause, end.Lived)
			end.Pause = pause
			if c.cfg.Ended != nil {
				c.cfg.Ended(end)
			}
			var err error
			if p, err = c.again(pause); errors.Is(err, errStopped) {
				return
			}
			begun, end = time.Now(), End{Err: err}
		}
	}
}

// over notes that a life has ended and reports whether there is no next one.
func (c *Child) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	return c.closed
}

var errStopped = errors.New("supervise: stopped")

// again begins another life after a pause.
func (c *Child) again(pause time.Duration) (*process.Process, error) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.stopped:
		return nil, errStopped
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errStopped
	}
	p, err := process.Start(c.life, c.cfg.Spec)
	c.current = p
	return p, err
}

// PID is the id of the process, or 0 between two lives.
func (c *Child) PID() int {
	if p := c.process(); p != nil {
		return p.PID()
	}
	return 0
}

func (c *Child) process() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Kill ends the present life with SIGKILL and waits until it is over, or for ctx.
// The next one begins as after any other end. Between two lives it does nothing.
func (c *Child) Kill(ctx context.Context) error {
	p := c.process()
	if p == nil {
		return nil
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, process.ErrExited) {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop ends the child for good: SIGTERM, and SIGKILL after grace, at once if grace
// is 0 or less. It returns when the process is gone and can be repeated.
func (c *Child) Stop(grace time.Duration) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stopped)
	}
	p := c.current
	c.mu.Unlock()
	var err error
	if p != nil {
		err = p.Stop(grace)
	}
	c.keeping.Wait()
	c.end()
	return err
}
