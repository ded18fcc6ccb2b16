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
// run could not be closed. A run whose head is committed has finished, or waits,
// whatever happened afterwards.
func (r *Run) finish(result harness.Result, err error) *event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.end()
	decided := false
	switch r.head {
	case headCommitted:
		err = r.terminate(event.RunFinished{StopReason: stopReason(result)})
		decided = err == nil
	case headInterrupted:
		err = r.terminate(interrupted(r.asked))
		decided = err == nil
	case headStands, headCovered, headMoved:
	}
	if !decided {
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

// terminate takes the terminal that a committed head decided.
func (r *Run) terminate(end event.Data) error {
	if err := r.accept(r.machine.Stamp(event.Draft{Data: end}, r.cfg.Now().UTC())); err != nil {
		return fault.Wrap(err, fault.Protocol, "session.finish")
	}
	return nil
}

// stopReason is a model's word, and may be anything.
func stopReason(result harness.Result) string {
	if !event.ValidID(result.StopReason) {
		return unknownStopReason
	}
	return result.StopReason
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
	case errors.Is(f, errStuck): // what it does meanwhile, nobody knows
		effects = event.SideEffectsPossible
	case r.broken != nil:
		f = r.broken
	case r.reason != "":
		return cancelled(r.reason)
	case r.late(f.Code()):
		return cancelled(event.CancelledByDeadline)
	case r.cfg.lost():
		f = fault.Wrap(f, fault.SandboxEvicted, "session.run")
	case r.head == headMoved:
		// The commit was told that a cancel was decided first. Its reason stands in
		// the committed record, and here only what it mostly is.
		return cancelled(event.CancelledByClient)
	case f.Code() == fault.Cancelled:
		// Nobody has cancelled the run, so whoever says so was ended itself.
		f = fault.Wrap(f, fault.DependencyUnavailable, "session.run")
	}
	r.cfg.Logger.Warn("run failed", "run_id", r.env.RunID, "code", string(f.Code()), "incident_id", f.Incident(), "error", f.Error())
	return event.RunError{
		Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable(),
		RetryAfterSeconds: seconds(f.RetryAfter()), SideEffectStatus: effects,
	}
}

// nearDeadline is how much earlier than here the run's deadline may come to a
// peer, which ends then what it did for the run.
const nearDeadline = 500 * time.Millisecond

// late says that a run which ended with this code ended by its deadline.
func (r *Run) late(code fault.Code) bool {
	if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		return true
	}
	switch code { // of a peer that has ended, for whatever it was asked
	case fault.DeadlineExceeded, fault.Cancelled, fault.CapabilityExpired, fault.DependencyUnavailable,
		fault.ModelFailed, fault.ModelUnavailable, fault.ToolUnavailable, fault.ToolOutcomeUnknown:
		return time.Until(r.env.Deadline) <= nearDeadline
	default:
		return false
	}
}

func seconds(d time.Duration) *uint64 {
	if d <= 0 {
		return nil
	}
	n := uint64((d + time.Second - 1) / time.Second)
	return &n
}
