package runs

import (
	"context"

	"cofferdam.dev/pkg/fault"
)

// TakeStream takes the first stream of a run that was started with
// CancelOnDisconnect, and reports whether the caller has it: of several, on any
// replica, one does. Errors: not_found, dependency_unavailable.
func (s *Service) TakeStream(ctx context.Context, caller Caller, runID string) (first bool, err error) {
	rec, _, err := s.find(ctx, caller, runID)
	if err != nil {
		return false, err
	}
	first, err = s.cfg.Writer.TakeStream(ctx, rec.ID, runID)
	if err != nil {
		return false, fault.From(err, "runs.TakeStream")
	}
	return first, nil
}
