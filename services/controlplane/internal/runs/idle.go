package runs

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
)

// idleSweeps is how many looks an idle sandbox gets in its time.
const idleSweeps = 10

// giveBack replaces, at every look, the leases whose sandboxes have waited too
// long for a turn. A replacement claims nothing: the next run does, and restores
// from the committed head.
func (s *Service) giveBack(ctx context.Context) {
	live, err := s.cfg.Provider.List(ctx)
	if err != nil || len(live) == 0 {
		return
	}
	used := make(map[string]bool, len(live))
	for _, in := range live {
		used[in.ClaimName] = true
	}
	s.each(ctx, false, func(rec binding.Record) {
		idle := rec.Run == nil && rec.Lease != nil && used[rec.Lease.ClaimName] && s.cfg.Now().Sub(rec.UpdatedAt) > s.cfg.IdleAfter
		if !idle {
			return
		}
		s.cfg.Logger.InfoContext(ctx, "sandbox was idle for too long and is given back", "generation", rec.Generation)
		s.replaceIdle(ctx, rec)
	})
}

// replaceIdle commits the next generation of a record without a run, and gives
// the old sandbox back. A run that has started since the record was read keeps
// its sandbox: the write asks for none.
func (s *Service) replaceIdle(ctx context.Context, rec binding.Record) {
	next, err := s.cfg.Leases.ReplaceIdle(ctx, rec, rec.Lease.Profile)
	if err != nil {
		if !errors.Is(err, binding.ErrFenced) && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "lease could not be replaced yet", "error", err.Error())
		}
		return
	}
	s.conclude(ctx, next)
}

// idleTicker looks a few times in the time that a sandbox may be idle.
func (s *Service) idleTicker() *time.Ticker {
	return time.NewTicker(max(s.cfg.IdleAfter/idleSweeps, time.Millisecond))
}
