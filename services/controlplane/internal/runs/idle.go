package runs

import (
	"context"
	"errors"
	"regexp"
	"time"

	"cofferdam.dev/pkg/binding"
)

// idleSweeps is how many looks an idle sandbox gets in its time.
const idleSweeps = 10

// claimPattern is what the claims of a binding are named like: a claim with another
// name was made by somebody else and is none of ours.
var claimPattern = regexp.MustCompile(`^hc-[0-9a-f]{32}$`)

// tending tends until ctx ends. It has a loop of its own, since it waits for the
// provider.
func (s *Service) tending(ctx context.Context) {
	tick := s.idleTicker()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.tend(ctx)
		}
	}
}

// tend compares the sandboxes that there are with the committed leases, and
// corrects what does not agree, in both directions:
//
//   - a lease whose sandbox has waited too long for a turn is replaced, and the
//     sandbox given back;
//   - a lease whose sandbox is gone, unnoticed, is replaced;
//   - a sandbox whose claim no record knows is released.
//
// A replacement claims nothing: the next run does, and restores from the committed
// head. The claims are listed before the records are read, and a claim is committed
// before it is made: a claim that no record knows then was dropped before, and is
// nobody's.
func (s *Service) tend(ctx context.Context) {
	live, err := s.cfg.Provider.List(ctx)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "sandboxes cannot be listed", "error", err.Error())
		return
	}
	claimed := make(map[string]string, len(live)) // the uid by claim name
	for _, in := range live {
		claimed[in.ClaimName] = in.UID
	}
	known := map[string]bool{}
	whole := s.each(ctx, false, func(rec binding.Record) {
		for _, e := range rec.Ending {
			if e.Lease != nil {
				known[e.Lease.ClaimName] = true
			}
		}
		l := rec.Lease
		if l == nil {
			return
		}
		known[l.ClaimName] = true
		uid, there := claimed[l.ClaimName]
		switch {
		case rec.Run != nil:
		case there && (l.InstanceUID == "" || l.InstanceUID == uid):
			s.giveBack(ctx, rec)
		case l.InstanceUID != "":
			s.missing(ctx, rec)
		}
	})
	if !whole {
		return
	}
	for _, in := range live {
		if !known[in.ClaimName] && claimPattern.MatchString(in.ClaimName) {
			s.cfg.Logger.WarnContext(ctx, "sandbox is no binding's; it is released", "claim", in.ClaimName, "instance", in.UID)
			s.releases.begin(in.ClaimName, func(ctx context.Context) error { return s.releaseOrphan(ctx, in.ClaimName) })
		}
	}
}

// giveBack replaces the lease of a sandbox that has waited too long for a turn.
func (s *Service) giveBack(ctx context.Context, rec binding.Record) {
	if s.cfg.Now().Sub(rec.UpdatedAt) <= s.cfg.IdleAfter {
		return
	}
	s.cfg.Logger.InfoContext(ctx, "sandbox was idle for too long and is given back", "generation", rec.Generation)
	s.replaceIdle(ctx, rec)
}

// missing replaces a lease whose sandbox is not there. The provider is asked for
// this very one: it may have been made since the sandboxes were listed.
func (s *Service) missing(ctx context.Context, rec binding.Record) {
	alive, err := s.cfg.Provider.Alive(ctx, rec.Lease.ClaimName, rec.Lease.InstanceUID)
	if err != nil || alive {
		return
	}
	s.cfg.Logger.InfoContext(ctx, "sandbox is gone; its lease is replaced", "generation", rec.Generation)
	s.replaceIdle(ctx, rec)
}

func (s *Service) releaseOrphan(ctx context.Context, claimName string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.CancelGrace)
	defer cancel()
	return s.release(ctx, claimName)
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
	s.concludeBeside(ctx, next)
}

// idleTicker looks a few times in the time that a sandbox may be idle.
func (s *Service) idleTicker() *time.Ticker {
	return time.NewTicker(min(max(s.cfg.IdleAfter/idleSweeps, time.Millisecond), s.cfg.TendEvery))
}
