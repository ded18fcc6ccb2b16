package runs

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// clearAttempts bounds how often a clear starts again because the record moved on.
const clearAttempts = 8

// Cleared is a conversation after its clear.
type Cleared struct {
	BindingID string
	Epoch     uint32
}

// Clear begins a conversation anew: a new epoch, without thread state, without a
// question, and with the next run in another sandbox. A run that is under way is
// cancelled. Memory and the logs of earlier runs stay. epoch, where it is not
// nil, is the one to clear: a clear of it that is repeated clears nothing more.
// Errors: not_found, revision_conflict for an epoch that is not there yet,
// capacity while too much of the conversation still ends.
func (s *Service) Clear(ctx context.Context, caller Caller, agentID, conversationID string, epoch *uint32) (Cleared, error) {
	const op = "runs.Clear"
	for range clearAttempts {
		rec, err := s.conversation(ctx, caller, agentID, conversationID)
		switch {
		case err != nil:
			return Cleared{}, err
		case rec.ID == "":
			return Cleared{}, fault.New(fault.NotFound, op)
		case epoch != nil && *epoch > rec.Epoch:
			return Cleared{}, fault.New(fault.RevisionConflict, op, fault.Detail("epoch: later than the conversation's"))
		case epoch != nil && *epoch < rec.Epoch:
			return Cleared{rec.ID, rec.Epoch}, nil
		}
		if rec.Run != nil {
			// It would end as lost otherwise, and it was the caller who ended it.
			if err := s.decideCancel(ctx, rec, event.CancelledByClient); err != nil {
				return Cleared{}, err
			}
		}
		next, err := s.cfg.Writer.Clear(ctx, rec.ID, rec.Epoch, rec.Generation, nil, "")
		if errors.Is(err, binding.ErrFenced) {
			continue // another generation since the record was read
		}
		if err != nil {
			return Cleared{}, fault.From(err, op)
		}
		if rec.Run != nil {
			s.hub.wake(rec.Run.ID)
		}
		// The clear stands; what is not concluded in this time the reconciler does.
		concluding, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.cfg.CancelGrace)
		defer cancel()
		s.conclude(concluding, next)
		return Cleared{next.ID, next.Epoch}, nil
	}
	return Cleared{}, fault.New(fault.RevisionConflict, op)
}
