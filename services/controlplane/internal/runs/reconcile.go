package runs

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// listPage is how many records are looked at at once.
const listPage = 256

// reconcile concludes what is ending, takes over what nobody drives any more,
// and replaces the leases of sandboxes that went away, until ctx ends.
func (s *Service) reconcile(ctx context.Context) {
	watch := newBeatWatch(s.cfg.Now)
	s.sweep(ctx, watch)
	tick := time.NewTicker(s.cfg.ReconcileEvery)
	defer tick.Stop()
	idle := s.idleTicker()
	defer idle.Stop()
	exits := s.cfg.Provider.Exits()
	for {
		select {
		case <-ctx.Done():
			return
		case exit, open := <-exits:
			if !open {
				exits = nil // the provider has closed; the sweep still asks it
				continue
			}
			s.gone(ctx, exit)
		case <-tick.C:
			s.sweep(ctx, watch)
		case <-idle.C:
			s.tend(ctx)
			s.expire(ctx)
		}
	}
}

// sweep looks at every record that has a run or something ending.
func (s *Service) sweep(ctx context.Context, watch *beatWatch) {
	whole := s.each(ctx, true, func(rec binding.Record) {
		if rec.Run != nil && !s.hub.drives(rec.Run.ID) {
			s.adopt(ctx, rec, watch)
		}
		if len(rec.Ending) > 0 {
			s.conclude(ctx, rec)
		}
	})
	if !whole {
		watch.reset() // while nobody could beat, nobody was lost
	}
}

// each looks at all records, or the busy ones, and reports whether it saw all.
func (s *Service) each(ctx context.Context, busy bool, look func(binding.Record)) (whole bool) {
	for after := ""; ; {
		page, err := s.cfg.Writer.Backend().List(ctx, after, listPage, busy)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "records cannot be listed", "error", err.Error())
			}
			return false
		}
		for _, rec := range page {
			look(rec)
		}
		if len(page) < listPage {
			return true
		}
		after = page[len(page)-1].ID
	}
}

// adopt takes over a run that this replica does not drive: at once if it
// carries this replica's own name (a start whose reply was lost), else after
// the same beat was seen for a whole interval of this replica's own clock.
func (s *Service) adopt(ctx context.Context, rec binding.Record, watch *beatWatch) {
	run := rec.Run
	if run.Owner != s.cfg.Owner && !watch.still(run.ID, run.OwnerBeat, s.cfg.TakeOverAfter) {
		return
	}
	err := s.cfg.Writer.TakeOver(ctx, rec.ID, run.ID, run.Owner, run.OwnerBeat)
	if err != nil {
		if !errors.Is(err, binding.ErrFenced) && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "run could not be taken over", "error", err.Error())
		}
		return
	}
	s.cfg.Logger.InfoContext(ctx, "took over a run whose owner is gone")
	if next, err := s.cfg.Writer.Backend().Load(ctx, rec.ID); err == nil {
		s.conclude(ctx, next)
	}
}

// conclude does what is left to do for everything in ending. What fails is
// tried again with the next sweep.
func (s *Service) conclude(ctx context.Context, rec binding.Record) {
	s.concludeRuns(ctx, rec)
	s.concludeLeases(rec)
}

// Replaced begins to end what a lease's replacement took out of service.
func (s *Service) Replaced(rec binding.Record) { s.concludeLeases(rec) }

// concludeLeases releases the claims that are to end, beside everything else.
func (s *Service) concludeLeases(rec binding.Record) {
	for _, e := range rec.Ending {
		if e.Lease != nil {
			s.releases.begin(e.Lease.ClaimName, func(ctx context.Context) { s.concludeLease(ctx, rec.ID, e.Lease.ClaimName) })
		}
	}
}

// concludeRuns leaves the leases alone: a claim that waits to be deleted holds
// nobody up.
func (s *Service) concludeRuns(ctx context.Context, rec binding.Record) {
	for _, e := range rec.Ending {
		if e.Run == nil {
			continue
		}
		if err := s.concludeRun(ctx, rec, e.Run.ID, ""); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "run could not be concluded yet", "error", err.Error())
		}
	}
}

func (s *Service) concludeRun(ctx context.Context, rec binding.Record, runID, stopReason string) error {
	if err := s.stopHarness(ctx, rec, runID); err != nil {
		return err
	}
	_, err := s.cfg.Writer.ConcludeRun(ctx, rec.ID, runID, func(run binding.Run, sideEffects string) (binding.Batch, error) {
		now, err := s.cfg.Writer.Backend().Load(ctx, rec.ID)
		if err != nil {
			return binding.Batch{}, err
		}
		return s.closing(ctx, now, run, sideEffects, stopReason, nil)
	})
	s.hub.grew(runID, 0)
	if fault.Is(err, fault.NotFound) {
		return nil // the record was read before the run got there
	}
	return err
}

// stopHarness sees to the sandbox of a run that left service without its terminal,
// since whoever drove it is gone, or hangs with the worker's stream in its hands:
// nobody knows what its harness does. The lease is replaced, so that no later run
// meets that harness. A run that is to be concluded as cancelled waits until the
// sandbox has ended: nobody may be told that it was cancelled before its harness has
// stopped. Other ends promise nothing of that kind.
func (s *Service) stopHarness(ctx context.Context, rec binding.Record, runID string) error {
	e := rec.EndingRun()
	if e == nil || e.Run.ID != runID || e.Terminal {
		return nil
	}
	if rec.Lease != nil && rec.Generation == e.Generation {
		next, err := s.cfg.Leases.ReplaceIdle(ctx, rec, rec.Lease.Profile)
		if errors.Is(err, binding.ErrFenced) {
			next, err = s.cfg.Writer.Backend().Load(ctx, rec.ID)
		}
		if err != nil {
			return err
		}
		rec = next
		s.concludeLeases(rec)
	}
	if e.Run.End.Kind != binding.EndCancelling {
		return nil
	}
	release, cancel := context.WithTimeout(ctx, 2*s.cfg.CancelGrace)
	defer cancel()
	for _, l := range rec.Ending {
		if l.Lease != nil && l.Epoch == e.Epoch && l.Generation == e.Generation {
			if err := s.cfg.Provider.Release(release, l.Lease.ClaimName); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) concludeLease(ctx context.Context, bindingID, claimName string) {
	release, cancel := context.WithTimeout(ctx, 2*s.cfg.CancelGrace)
	defer cancel()
	if err := s.cfg.Provider.Release(release, claimName); err != nil {
		s.cfg.Logger.WarnContext(ctx, "claim could not be released yet", "error", err.Error())
		return
	}
	if err := s.cfg.Writer.DropLease(ctx, bindingID, claimName); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "released lease could not be dropped yet", "error", err.Error())
	}
}

// gone replaces the lease of a sandbox that went away while no run was active.
// A run that was, ends in its driver, which sees the broken stream.
func (s *Service) gone(ctx context.Context, exit sandbox.Exit) {
	s.exits.note(exit)
	s.each(ctx, false, func(rec binding.Record) {
		l := rec.Lease
		if l == nil || l.ClaimName != exit.ClaimName || l.InstanceUID != exit.UID || rec.Run != nil {
			return
		}
		s.cfg.Logger.InfoContext(ctx, "sandbox went away; its lease is replaced", "generation", rec.Generation)
		s.replaceIdle(ctx, rec)
	})
}

// beatWatch remembers when a beat was first seen, by this replica's own clock.
type beatWatch struct {
	now  func() time.Time
	seen map[string]beatSeen
}

type beatSeen struct {
	beat        uint64
	since, last time.Time
}

func newBeatWatch(now func() time.Time) *beatWatch {
	return &beatWatch{now: now, seen: map[string]beatSeen{}}
}

// still reports whether the run's beat has stood for the interval, and was looked
// at all the while: one who has slept himself has seen nothing of the owner, who
// may have slept as long.
func (w *beatWatch) still(runID string, beat uint64, interval time.Duration) bool {
	at := w.now()
	s, ok := w.seen[runID]
	if !ok || s.beat != beat || at.Sub(s.last) > interval/2 {
		w.forgetOld(at.Add(-10 * interval))
		s = beatSeen{beat: beat, since: at}
	}
	s.last = at
	w.seen[runID] = s
	return at.Sub(s.since) >= interval
}

// reset forgets what was seen.
func (w *beatWatch) reset() { clear(w.seen) }

func (w *beatWatch) forgetOld(before time.Time) {
	for id, s := range w.seen {
		if s.last.Before(before) {
			delete(w.seen, id)
		}
	}
}
