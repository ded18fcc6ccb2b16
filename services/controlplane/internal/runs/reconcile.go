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
// and replaces the leases of sandboxes that went away, until ctx ends. It asks the
// provider for nothing: one that hangs would keep this replica from seeing that
// another one is gone.
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
				exits = nil // the provider has closed; it is still asked beside
				continue
			}
			s.gone(ctx, exit)
		case <-tick.C:
			s.sweep(ctx, watch)
		case <-idle.C:
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
			s.concludeBeside(ctx, rec)
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
		s.concludeBeside(ctx, next)
	}
}

// conclude does what is left to do for everything in ending, and waits for a
// sandbox where it must. What fails is tried again with the next sweep.
func (s *Service) conclude(ctx context.Context, rec binding.Record) {
	s.concludeRuns(ctx, rec)
	s.concludeLeases(rec)
}

// concludeBeside does the same and waits for no sandbox: a run that does is concluded
// by the sweep that finds its claim released.
func (s *Service) concludeBeside(ctx context.Context, rec binding.Record) {
	if e := rec.EndingRun(); e != nil {
		next, err := s.replaceLost(ctx, rec, e.Run.ID)
		if err == nil && len(awaited(next, e.Run.ID)) == 0 {
			err = s.settle(ctx, rec.ID, e.Run.ID, "")
		}
		s.notConcluded(ctx, err)
	}
	s.concludeLeases(rec)
}

// Replaced begins to end what a lease's replacement took out of service.
func (s *Service) Replaced(rec binding.Record) { s.concludeLeases(rec) }

// concludeLeases releases the claims that are to end, beside everything else.
func (s *Service) concludeLeases(rec binding.Record) {
	id := rec.ID // a claim may wait for long, and keeps no record with its log
	for _, e := range rec.Ending {
		if e.Lease == nil {
			continue
		}
		claim := e.Lease.ClaimName
		s.releases.begin(claim, func(ctx context.Context) error { return s.concludeLease(ctx, id, claim) })
	}
}

// concludeRuns leaves the leases alone: a claim that waits to be deleted holds
// nobody up.
func (s *Service) concludeRuns(ctx context.Context, rec binding.Record) {
	if e := rec.EndingRun(); e != nil {
		s.notConcluded(ctx, s.concludeRun(ctx, rec, e.Run.ID, ""))
	}
}

func (s *Service) notConcluded(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "run could not be concluded yet", "error", err.Error())
	}
}

func (s *Service) concludeRun(ctx context.Context, rec binding.Record, runID, stopReason string) error {
	if err := s.stopHarness(ctx, rec, runID); err != nil {
		return err
	}
	return s.settle(ctx, rec.ID, runID, stopReason)
}

// settle makes write 8 for a run whose sandbox nobody waits for.
func (s *Service) settle(ctx context.Context, bindingID, runID, stopReason string) error {
	_, err := s.cfg.Writer.ConcludeRun(ctx, bindingID, runID, func(run binding.Run, sideEffects string) (binding.Batch, error) {
		now, err := s.cfg.Writer.Backend().Load(ctx, bindingID)
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
// and waits for its end where the run does.
func (s *Service) stopHarness(ctx context.Context, rec binding.Record, runID string) error {
	rec, err := s.replaceLost(ctx, rec, runID)
	if err != nil {
		return err
	}
	release, cancel := context.WithTimeout(ctx, 2*s.cfg.CancelGrace)
	defer cancel()
	for _, claim := range awaited(rec, runID) {
		if err := s.cfg.Provider.Release(release, claim); err != nil {
			return err
		}
	}
	return nil
}

// replaceLost replaces the lease of a run that left service without its terminal,
// since whoever drove it is gone, or hangs with the worker's stream in its hands:
// nobody knows what its harness does, and no later run is to meet it. It begins to
// release the claim.
func (s *Service) replaceLost(ctx context.Context, rec binding.Record, runID string) (binding.Record, error) {
	e := rec.EndingRun()
	if e == nil || e.Run.ID != runID || e.Terminal || rec.Lease == nil || rec.Generation != e.Generation {
		return rec, nil
	}
	next, err := s.cfg.Leases.ReplaceIdle(ctx, rec, rec.Lease.Profile)
	if errors.Is(err, binding.ErrFenced) {
		next, err = s.cfg.Writer.Backend().Load(ctx, rec.ID)
	}
	if err != nil {
		return rec, err
	}
	s.concludeLeases(next)
	return next, nil
}

// awaited are the claims whose sandboxes have to end before a run in ending can be
// concluded: nobody may be told that it was cancelled before its harness has stopped.
// Other ends promise nothing of that kind.
func awaited(rec binding.Record, runID string) (claims []string) {
	e := rec.EndingRun()
	if e == nil || e.Run.ID != runID || e.Terminal || e.Run.End.Kind != binding.EndCancelling {
		return nil
	}
	for _, l := range rec.Ending {
		if l.Lease != nil && l.Epoch == e.Epoch && l.Generation == e.Generation {
			claims = append(claims, l.Lease.ClaimName)
		}
	}
	return claims
}

// concludeLease releases a claim that is to end. Its error is that the claim could not
// be released; what else fails is tried again with the next sweep.
func (s *Service) concludeLease(ctx context.Context, bindingID, claimName string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.CancelGrace)
	defer cancel()
	if err := s.release(ctx, claimName); err != nil {
		return err
	}
	if err := s.cfg.Writer.DropLease(ctx, bindingID, claimName); err != nil && s.stop.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "released lease could not be dropped yet", "error", err.Error())
	}
	return nil
}

func (s *Service) release(ctx context.Context, claimName string) error {
	err := s.cfg.Provider.Release(ctx, claimName)
	if err != nil && s.stop.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "claim could not be released yet", "error", err.Error())
	}
	return err
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
