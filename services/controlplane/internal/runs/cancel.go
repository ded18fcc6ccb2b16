package runs

import (
	"context"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// cancelAttempts bounds how often a run may be carried over while it is being
// cancelled.
const cancelAttempts = 8

// Cancelled is what is known of a cancel when it is answered.
type Cancelled struct {
	// Cancelled is true when the run ends, or ended, as cancelled. A run that
	// finished first stays finished.
	Cancelled bool
	RunID     string
	// Confirmed is true once the run has its terminal: nothing of it goes on.
	Confirmed        bool
	SideEffectStatus string
}

// Cancel decides that a run ends as cancelled, where nothing is decided yet, and
// waits, bounded by ctx and the cancel grace, for its conclusion. It may be
// repeated; it is answered with what was decided. Errors: not_found.
func (s *Service) Cancel(ctx context.Context, caller Caller, runID string, reason event.CancelReason) (Cancelled, error) {
	rec, doc, err := s.find(ctx, caller, runID)
	if err != nil {
		return Cancelled{}, err
	}
	if doc == nil && rec.Run != nil && rec.Run.ID == runID {
		if err := s.decideCancel(ctx, rec, reason); err != nil {
			return Cancelled{}, err
		}
		s.hub.wake(runID)
	}
	wait, cancel := context.WithTimeout(ctx, 2*s.cfg.CancelGrace)
	defer cancel()
	return s.confirm(wait, caller, runID)
}

// decideCancel tries again where the run was carried over to another lease in
// between.
func (s *Service) decideCancel(ctx context.Context, rec binding.Record, reason event.CancelReason) error {
	runID := rec.Run.ID
	for range cancelAttempts {
		if rec.Run == nil || rec.Run.ID != runID || !rec.Run.End.Open() {
			return nil
		}
		grant, err := s.cfg.Guard.Admit(ctx, fence.Envelope{
			BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation, RunID: runID,
			RequestID: rec.Run.RequestID, IdempotencyKey: "cancel", Deadline: rec.Run.Deadline,
		})
		if err == nil {
			_, err = s.cfg.Writer.SetEnd(ctx, grant, binding.End{Kind: binding.EndCancelling, Reason: string(reason)})
		}
		switch {
		case fault.Is(err, fault.DeadlineExceeded) && ctx.Err() == nil:
			return nil // it ends by its deadline at this moment
		case !fault.Is(err, fault.StaleLease):
			return err
		}
		if rec, err = s.cfg.Writer.Backend().Load(ctx, rec.ID); err != nil {
			return fault.Wrap(err, fault.DependencyUnavailable, "runs.Cancel")
		}
	}
	return fault.New(fault.RevisionConflict, "runs.Cancel")
}

// confirm waits until the run has its terminal, and answers with what is known
// when the wait is over.
func (s *Service) confirm(ctx context.Context, caller Caller, runID string) (Cancelled, error) {
	out := Cancelled{RunID: runID, SideEffectStatus: string(event.SideEffectsPossible)}
	for {
		changed, _ := s.hub.watch(runID)
		rec, doc, err := s.find(ctx, caller, runID)
		if err != nil && ctx.Err() == nil {
			return out, err
		}
		if ctx.Err() != nil {
			return out, nil //nolint:nilerr // the wait is over: what was known last is the answer
		}
		if doc != nil {
			return Cancelled{
				RunID: runID, Confirmed: true,
				Cancelled: doc.End.Kind == binding.EndCancelling, SideEffectStatus: doc.SideEffects,
			}, nil
		}
		out.Cancelled = endOf(rec, runID).Kind == binding.EndCancelling
		select {
		case <-ctx.Done():
			return out, nil
		case <-changed:
		case <-time.After(pollEvery):
		}
	}
}

// endOf is how a run of the record ends, as far as it is decided.
func endOf(rec binding.Record, runID string) binding.End {
	if rec.Run != nil && rec.Run.ID == runID {
		return rec.Run.End
	}
	if e := rec.EndingRun(); e != nil && e.Run.ID == runID {
		return e.Run.End
	}
	return binding.End{}
}
