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

// Shutdown cancels the active run, waits for it, and cleans the harness up,
// within ctx and the grace that bind gave. What has not ended by then is left to
// the end of the process. A second call waits for the first and does nothing
// else. Errors: deadline_exceeded, and what the harness says of its cleanup.
func (s *Session) Shutdown(ctx context.Context) error {
	const op = "session.Shutdown"
	s.mu.Lock()
	first := !s.closed
	s.closed = true
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
		errs = append(errs, wait(ctx, active.stopped))
	}
	select { // for a bind that is under way
	case s.binding <- struct{}{}:
		defer func() { <-s.binding }()
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	s.mu.Lock()
	runtime, connector := s.runtime, s.connector
	s.mu.Unlock()
	if runtime != nil {
		errs = append(errs, cleanup(ctx, runtime))
	}
	if connector != nil {
		connector.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fault.From(err, op)
	}
	return nil
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
