package binding

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/fence"
)

// Beat shows that the owner drives its run (write 10). A replica beats only for
// runs that it drives (model: ASIS_BEAT). Fault: stale_lease.
func (w *Writer) Beat(ctx context.Context, g fence.Grant, owner string) error {
	const op = "binding.Beat"
	f, e, err := filterOf(g)
	if err != nil {
		return err
	}
	_, err = w.update(ctx, e.BindingID, f, func(r *Record) error { return r.beat(owner) })
	return fail(ctx, err, op)
}

func (r *Record) beat(owner string) error {
	if r.Run == nil || r.Run.Owner != owner {
		return ErrFenced
	}
	r.Run.OwnerBeat++
	return nil
}

// TakeOver moves a run to ending whose owner has shown the same beat for a whole
// interval, in the caller's own majority reads: its end is lost where it was
// open (write 10). It is repeatable, and answers alike where the run is ending
// already. Faults: stale_lease where the owner has beaten since or the run is
// not there, not_found.
func (w *Writer) TakeOver(ctx context.Context, bindingID, runID, owner string, beat uint64) error {
	const op = "binding.TakeOver"
	_, err := w.update(ctx, bindingID, Filter{RunID: &runID}, func(r *Record) error { return r.takeOver(runID, owner, beat) })
	if errors.Is(err, ErrFenced) {
		_, err = w.standing(ctx, bindingID, func(r Record) bool { _, entry := r.find(runID); return entry != nil })
	}
	return fail(ctx, err, op)
}

func (r *Record) takeOver(runID, owner string, beat uint64) error {
	run := r.Run
	if run == nil || run.ID != runID || run.Owner != owner || run.OwnerBeat != beat {
		return ErrFenced
	}
	r.retireRun(false)
	r.Revision++
	return nil
}
