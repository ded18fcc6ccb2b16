package session

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// errStuck is a harness that goes on after its run.
var errStuck = errors.New("the harness did not stop")

// watch waits for the harness to stop once its run is over, and gives it up after
// StopTimeout. It ends with the run, or then.
func (s *Session) watch(r *Run) {
	<-r.ctx.Done()
	timer := time.NewTimer(s.cfg.StopTimeout)
	defer timer.Stop()
	select {
	case <-r.stopped:
	case <-timer.C:
		s.giveUp(r)
	}
}

// giveUp ends a run whose harness does not stop, and then the worker: what runs
// on in it cannot be trusted to be quiet, and only the end of the process ends
// it. The terminal says what is known. It is never run.cancelled, which would
// claim that the harness has stopped; what a committed head decided stands.
func (s *Session) giveUp(r *Run) {
	s.mu.Lock()
	if s.active != r { // it has just stopped
		s.mu.Unlock()
		return
	}
	r.stuck = true
	s.closed = true
	s.conclude(r, harness.Result{}, fault.Wrap(errStuck, fault.SandboxLimit, "session.giveUp"))
	s.mu.Unlock()
	s.cfg.Logger.Error("the harness does not stop; the worker ends", "run_id", r.env.RunID, "after", s.cfg.StopTimeout.String())
	if err := s.Shutdown(context.Background()); err != nil { // within its grace
		s.cfg.Logger.Error("shutdown around a harness that does not stop", "error", err.Error())
	}
}
