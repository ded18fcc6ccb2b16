package runs

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/lease"
)

// wish is how the driver would have the run end. The store decides.
func (d *driver) wish(ctx context.Context, err error) binding.End {
	if d.stopped {
		if d.abandoned() {
			return binding.End{Kind: binding.EndError, Reason: string(d.whyGone(context.WithoutCancel(ctx), max(d.s.cfg.CancelGrace, d.s.cfg.ExitPatience)))}
		}
		return d.wishOf(d.terminal)
	}
	switch {
	case d.s.stop.Err() != nil:
		return binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByShutdown)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), !d.s.cfg.Now().Before(d.env.Deadline):
		return binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByDeadline)}
	case ctx.Err() != nil: // woken by a cancel whose end stands already
		return binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByClient)}
	case d.late(err):
		return binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByDeadline)}
	case broken(err) && d.evicted(context.WithoutCancel(ctx)):
		return binding.End{Kind: binding.EndError, Reason: string(d.whyGone(context.WithoutCancel(ctx), d.s.cfg.ExitPatience))}
	default:
		f := fault.From(err, "runs.drive")
		d.s.cfg.Logger.WarnContext(ctx, "run failed", "code", string(f.Code()), "op", f.Op(), "detail", f.Detail(), "incident_id", f.Incident(), "error", f.Error())
		return failed(f.Code(), f.RetryAfter())
	}
}

// abandoned reports that the worker was told to end by somebody else than this
// service: by its provider, whose reason counts.
func (d *driver) abandoned() bool {
	t, ok := d.terminal.(event.RunCancelled)
	return ok && t.Reason == event.CancelledByShutdown && d.s.stop.Err() == nil
}

// broken tells a connection that broke from an answer that was an error.
func broken(err error) bool {
	switch fault.CodeOf(err) {
	case fault.DependencyUnavailable, fault.Internal, fault.Cancelled:
		return true
	default:
		return false
	}
}

// wishOf is what the worker's own terminal asks for, where nothing is decided
// yet. It cannot say that a client cancelled, or that time is over when it is
// not.
func (d *driver) wishOf(terminal event.Data) binding.End {
	switch t := terminal.(type) {
	case event.RunFinished:
		return binding.End{Kind: binding.EndSuccess}
	case event.RunInterrupted:
		return binding.End{Kind: binding.EndInterrupted}
	case event.RunCancelled:
		late := t.Reason == event.CancelledByDeadline && !d.s.cfg.Now().Add(deadlineSlack).Before(d.env.Deadline)
		if late || t.Reason == event.CancelledByShutdown {
			return binding.End{Kind: binding.EndCancelling, Reason: string(t.Reason)}
		}
	case event.RunError:
		if code := fault.Code(t.Code); code.Known() {
			return failed(code, retryAfter(t))
		}
	}
	return binding.End{Kind: binding.EndError, Reason: string(fault.Protocol)}
}

// failed is the end of a run that failed, which may be worth another try after a
// while; 0 is unknown.
func failed(code fault.Code, after time.Duration) binding.End {
	end := binding.End{Kind: binding.EndError, Reason: string(code)}
	if code.Retryable() {
		end.RetryAfterSeconds = uint32(min(max(after+time.Second-1, 0)/time.Second, binding.MaxRetryAfterSeconds))
	}
	return end
}

// retryAfter is how long a worker's terminal says to wait, which is bounded before it
// is a duration.
func retryAfter(t event.RunError) time.Duration {
	if t.RetryAfterSeconds == nil {
		return 0
	}
	return time.Duration(min(*t.RetryAfterSeconds, binding.MaxRetryAfterSeconds)) * time.Second
}

// evicted asks the provider whether the sandbox is gone. The worker's stream
// breaks a moment before the provider knows, so it is asked for a while.
func (d *driver) evicted(ctx context.Context) bool {
	if d.held == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d.s.cfg.ExitPatience)
	defer cancel()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second/2) {
		alive, err := d.s.cfg.Provider.Alive(ctx, d.held.Record.Lease.ClaimName, d.held.Record.Lease.InstanceUID)
		if err == nil && !alive {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// whyGone is the code for a sandbox that is gone. The provider tells of its exit
// about when it says that it is.
func (d *driver) whyGone(ctx context.Context, patience time.Duration) fault.Code {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.s.exits.code(ctx, d.held.Record.Lease.InstanceUID)
}

// late reports that an error is the end of the run's time, seen a moment earlier by
// another clock, or by a capability, which knows whole seconds only.
func (d *driver) late(err error) bool {
	switch fault.CodeOf(err) {
	case fault.DeadlineExceeded, fault.CapabilityExpired:
		return !d.s.cfg.Now().Add(deadlineSlack).Before(d.env.Deadline)
	default:
		return false
	}
}

// deadlineSlack is by how much a worker's clock may be ahead of this one.
const deadlineSlack = 2 * time.Second

// end decides how the run ends, stops the worker, and concludes. A step that
// fails is left to the reconciler: everything it needs is committed.
func (d *driver) end(ctx context.Context, wish binding.End) {
	rec, err := d.decide(ctx, wish)
	if err != nil {
		d.s.cfg.Logger.ErrorContext(ctx, "the end of a run could not be decided yet", "error", err.Error())
		return
	}
	if rec.Run == nil || rec.Run.ID != d.env.RunID {
		d.s.conclude(ctx, rec) // it was replaced or taken over: the entry in ending has all that is needed
		return
	}
	failpoint.Reach(failpoint.EndDecided)
	stopReason := ""
	if t, ok := d.terminal.(event.RunFinished); ok {
		stopReason = t.StopReason
	}
	if d.stop(ctx, rec) && !spent(rec.Run.End) {
		err = d.s.terminate(ctx, rec, d.grant, stopReason, d.log.committed(rec.Run.EventHead))
	} else {
		err = d.retire(ctx, rec, stopReason)
	}
	if err != nil {
		d.s.cfg.Logger.ErrorContext(ctx, "run could not be concluded yet", "error", err.Error())
	}
	d.s.hub.grew(d.env.RunID, 0)
}

// spent says that a run ended so that its sandbox cannot be used again: one of its
// limits was hit, or a part of it is gone.
func spent(end binding.End) bool {
	return end.Reason == string(fault.SandboxLimit) || end.Reason == string(fault.SandboxEvicted)
}

// retire replaces the lease of a worker that cannot be used again, before the
// run has its terminal: the next run must not meet that worker. The replacement
// moves the run to ending, with the end that stands.
func (d *driver) retire(ctx context.Context, rec binding.Record, stopReason string) error {
	next, err := d.s.cfg.Leases.Replace(ctx, rec, d.agent.Profile)
	if errors.Is(err, binding.ErrFenced) {
		next, err = d.s.cfg.Writer.Backend().Load(ctx, rec.ID)
	}
	if err != nil {
		return err
	}
	err = d.s.concludeRun(ctx, next, d.env.RunID, stopReason)
	d.s.conclude(ctx, next)
	return err
}

// decide sets the run's end where none stands. A worker that says finished
// without a committed head has broken the protocol. A store that does not answer
// is asked until ctx ends.
func (d *driver) decide(ctx context.Context, wish binding.End) (rec binding.Record, err error) {
	if wish.Kind == binding.EndSuccess || wish.Kind == binding.EndInterrupted {
		wish = binding.End{Kind: binding.EndError, Reason: string(fault.Protocol)}
	}
	for {
		err = patient(ctx, func() error {
			rec, err = d.s.cfg.Writer.Backend().Load(ctx, d.env.BindingID)
			if err != nil {
				return fault.Wrap(err, fault.DependencyUnavailable, "runs.decide")
			}
			return nil
		})
		if err != nil || rec.Run == nil || rec.Run.ID != d.env.RunID || !rec.Run.End.Open() {
			return rec, err
		}
		if d.grant.Envelope().Generation != rec.Generation {
			if d.grant, err = d.s.again(ctx, d.grant, rec.Generation); err != nil {
				return rec, err
			}
		}
		err = patient(ctx, func() error {
			_, err := d.s.cfg.Writer.SetEnd(ctx, d.grant, wish)
			return err
		})
		if err != nil && (!fault.Is(err, fault.StaleLease) || ctx.Err() != nil) {
			return rec, err
		}
	}
}

// stop makes sure that the harness has stopped before the terminal says so. It
// reports whether the worker can be used again.
func (d *driver) stop(ctx context.Context, rec binding.Record) (healthy bool) {
	if d.held == nil || d.stopped {
		return true
	}
	if d.s.askToStop(ctx, rec, d.held) {
		return true
	}
	release, cancel := context.WithTimeout(ctx, d.s.cfg.CancelGrace)
	defer cancel()
	if err := d.s.cfg.Provider.Release(release, rec.Lease.ClaimName); err != nil {
		d.s.cfg.Logger.WarnContext(ctx, "sandbox could not be released yet", "error", err.Error())
	}
	return false
}

// askToStop cancels the run in the worker and waits, bounded, until the harness
// has stopped.
func (s *Service) askToStop(ctx context.Context, rec binding.Record, held *lease.Held) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CancelGrace)
	defer cancel()
	env := held.Grant.Envelope()
	env.Deadline = s.cfg.Now().Add(s.cfg.CancelGrace)
	token, err := s.cfg.Leases.Lifecycle(ctx, env, rec.Lease.InstanceUID)
	if err != nil {
		return false
	}
	reason := string(event.CancelledByShutdown)
	if rec.Run.End.Kind == binding.EndCancelling {
		reason = rec.Run.End.Reason
	}
	for {
		c, err := held.Client.Cancel(ctx, token.Token, env, reason)
		if err != nil {
			return false
		}
		if c.Stopped {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// terminate makes write 3: closing events, terminal and the move to ending are
// one write. Then it concludes. m is that of closing.
func (s *Service) terminate(ctx context.Context, rec binding.Record, g fence.Grant, stopReason string, m *event.Machine) error {
	effects, err := s.cfg.Writer.Revoke(ctx, rec, binding.Ending{Epoch: rec.Epoch, Generation: rec.Generation, Run: rec.Run})
	if err != nil {
		return err
	}
	batch, err := s.closing(ctx, rec, *rec.Run, effects, stopReason, m)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Writer.Terminate(ctx, g, s.cfg.Owner, batch, rec.Run.End); err != nil {
		return err
	}
	failpoint.Reach(failpoint.TerminalCommitted)
	s.hub.grew(rec.Run.ID, batch.Bytes())
	return s.concludeRun(ctx, rec, rec.Run.ID, stopReason)
}
