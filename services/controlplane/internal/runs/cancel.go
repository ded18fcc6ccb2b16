package runs

import (
	"context"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

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

func (s *Service) decideCancel(ctx context.Context, rec binding.Record, reason event.CancelReason) error {
	run := rec.Run
	if !run.End.Open() {
		return nil
	}
	grant, err := s.cfg.Guard.Admit(ctx, fence.Envelope{
		BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation, RunID: run.ID,
		RequestID: run.RequestID, IdempotencyKey: "cancel", Deadline: run.Deadline,
	})
	if err == nil {
		_, err = s.cfg.Writer.SetEnd(ctx, grant, binding.End{Kind: binding.EndCancelling, Reason: string(reason)})
	}
	if fault.Is(err, fault.StaleLease) || fault.Is(err, fault.DeadlineExceeded) {
		return nil // it ends in another way at this moment
	}
	return err
}

// confirm waits until the run has its terminal, and answers with what is known
// when the wait is over.
func (s *Service) confirm(ctx context.Context, caller Caller, runID string) (Cancelled, error) {
	out := Cancelled{RunID: runID, Cancelled: true, SideEffectStatus: string(event.SideEffectsPossible)}
	for {
		changed, _ := s.hub.watch(runID)
		rec, doc, err := s.find(context.WithoutCancel(ctx), caller, runID)
		if err != nil {
			return out, err
		}
		if doc != nil {
			return Cancelled{
				RunID: runID, Confirmed: true,
				Cancelled: doc.End.Kind == binding.EndCancelling, SideEffectStatus: doc.SideEffects,
			}, nil
		}
		if rec.Run != nil && rec.Run.ID == runID {
			out.Cancelled = rec.Run.End.Kind == binding.EndCancelling
		}
		select {
		case <-ctx.Done():
			return out, nil
		case <-changed:
		case <-time.After(pollEvery):
		}
	}
}
