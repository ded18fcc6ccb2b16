package session

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// defaultGrace is how long a shutdown may take where bind did not say.
const defaultGrace = 10 * time.Second

// Shutdown cancels the active run, waits for it, cleans the harness up and
// removes what was materialized, within ctx and the grace that bind gave. A
// harness that does not stop is cleaned up all the same, after half of that time;
// what has not ended by then is left to the end of the process. A second call
// waits for the first and does nothing else. Errors: deadline_exceeded, and what
// the harness says of its cleanup.
func (s *Session) Shutdown(ctx context.Context) error {
	const op = "session.Shutdown"
	s.mu.Lock()
	first := !s.ending
	s.ending, s.closed = true, true
	s.unbound.Stop()
	active := s.active
	ctx, cancel := context.WithTimeout(ctx, s.grace())
	s.mu.Unlock()
	defer cancel()
	if !first {
		select {
		case <-s.stopped:
			return nil
		case <-ctx.Done():
			return fault.From(ctx.Err(), op)
		}
	}
	defer close(s.stopped)
	var errs []error
	if active != nil {
		active.cancel(event.CancelledByShutdown)
		s.waitForStop(ctx, active)
	}
	select { // for a bind that is under way
	case s.binding <- struct{}{}:
		defer func() { <-s.binding }()
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	s.mu.Lock()
	parts := s.built
	s.mu.Unlock()
	errs = append(errs, parts.close(ctx))
	if active != nil && !s.isStuck(active) {
		errs = append(errs, wait(ctx, active.stopped))
	}
	if err := errors.Join(errs...); err != nil {
		return fault.From(err, op)
	}
	return nil
}

// waitForStop gives a run half of the time that there is. One that was given up
// has had its time.
func (s *Session) waitForStop(ctx context.Context, r *Run) {
	if s.isStuck(r) {
		return
	}
	if by, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(by)/2)
		defer cancel()
	}
	_ = wait(ctx, r.stopped) // asked again after the cleanup
}

func (s *Session) isStuck(r *Run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.stuck
}

// Done is closed once the worker was shut down.
func (s *Session) Done() <-chan struct{} { return s.stopped }

func (s *Session) grace() time.Duration {
	if s.bind == nil || s.bind.ShutdownGrace <= 0 {
		return defaultGrace
	}
	return s.bind.ShutdownGrace
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cleanup turns a panic of the adapter into an error.
func cleanup(ctx context.Context, runtime harness.Runtime) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v, "session.cleanup")
		}
	}()
	return runtime.Cleanup(ctx)
}
