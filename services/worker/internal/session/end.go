package session

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// unknownStopReason stands where a model gave none that can stand in an event.
const unknownStopReason = "unknown"

// finish makes the terminal, puts it into the stream and gives it; nil where the
// run could not be closed. A run whose head is committed has finished, whatever
// happened afterwards.
func (r *Run) finish(result harness.Result, err error) *event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.end()
	finished := false
	if r.committed {
		err = r.finished(result.StopReason)
		finished = err == nil
	}
	if !finished {
		events, cerr := r.machine.Close(r.cfg.Now().UTC(), r.started, r.ending(err))
		if cerr != nil {
			r.cfg.Logger.Error("run could not be closed", "error", cerr.Error())
		}
		for _, e := range events {
			r.queue.push(e, 0)
		}
	}
	terminal, ok := r.machine.Terminal()
	r.queue.close(ok)
	if !ok {
		return nil
	}
	return &terminal
}

func (r *Run) finished(stopReason string) error {
	if !event.ValidID(stopReason) { // it is a model's word
		stopReason = unknownStopReason
	}
	draft := event.Draft{Data: event.RunFinished{StopReason: stopReason}}
	if err := r.accept(r.machine.Stamp(draft, r.cfg.Now().UTC())); err != nil {
		return fault.Wrap(err, fault.Protocol, "session.finish")
	}
	return nil
}

// ending is how a run ends that has not finished.
func (r *Run) ending(err error) event.Data {
	effects := r.effects.status()
	cancelled := func(reason event.CancelReason) event.Data {
		return event.RunCancelled{Reason: reason, SideEffectStatus: effects}
	}
	f := fault.From(err, "session.run")
	if f == nil { // neither an error nor a commit
		f = fault.Wrap(errors.New("adapter committed nothing"), fault.Protocol, "session.run")
	}
	switch {
	case r.broken != nil:
		f = r.broken
	case r.reason != "":
		return cancelled(r.reason)
	case errors.Is(r.ctx.Err(), context.DeadlineExceeded), f.Code() == fault.DeadlineExceeded:
		return cancelled(event.CancelledByDeadline)
	case f.Code() == fault.Cancelled:
		// A facade knows already that the run was cancelled; its reason stands in
		// the committed record, and here only what it mostly is.
		return cancelled(event.CancelledByClient)
	}
	r.cfg.Logger.Warn("run failed", "run_id", r.env.RunID, "code", string(f.Code()), "incident_id", f.Incident(), "error", f.Error())
	return event.RunError{
		Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable(),
		RetryAfterSeconds: seconds(f.RetryAfter()), SideEffectStatus: effects,
	}
}

func seconds(d time.Duration) *uint64 {
	if d <= 0 {
		return nil
	}
	n := uint64((d + time.Second - 1) / time.Second)
	return &n
}

// effects is what the events of a run tell of its effects outside.
type effects struct {
	started, finished int
}

func (e *effects) see(d event.Data) {
	switch d.Type() { //nolint:exhaustive // nothing else says anything about effects
	case event.TypeToolStarted:
		e.started++
	case event.TypeToolFinished:
		e.finished++
	}
}

// status is known only where every call gave its result: one that ended in an
// error may have done something first.
func (e *effects) status() event.SideEffectStatus {
	switch {
	case e.started == 0:
		return event.SideEffectsNone
	case e.started > e.finished:
		return event.SideEffectsPossible
	default:
		return event.SideEffectsKnown
	}
}
