package binding

import (
	"context"
	"errors"
	"math"

	"cofferdam.dev/pkg/fault"
)

// Replace makes write 6: generation g becomes g+1, the lease moves to ending and
// a new one takes its place, in state claiming, under the name that claimName
// gives for g+1. Only after it may the claim be made: the name is a digest of
// binding and generation, so a repeated create is harmless. The first lease of a
// binding replaces none: generation 0 becomes 1.
//
// It answers alike where generation g+1 with that claim name stands already,
// whoever wrote it. Faults: stale_lease when the record has moved on otherwise,
// not_found, capacity when MaxEnding wait to be concluded.
func (w *Writer) Replace(ctx context.Context, bindingID string, epoch, generation uint32, claimName func(generation uint32) string, profile string) (Record, error) {
	lease := Lease{Profile: profile, State: LeaseClaiming}
	return w.replaceWhere(ctx, "binding.Replace", bindingID, Filter{Epoch: &epoch, Generation: &generation}, claimName, lease)
}

// ReplaceIdle is Replace where no run is active: the write asks, so that a run
// which started since the record was read keeps its sandbox. The new lease is
// hibernated. Faults: as Replace, and stale_lease while a run is active.
func (w *Writer) ReplaceIdle(ctx context.Context, bindingID string, epoch, generation uint32, claimName func(generation uint32) string, profile string) (Record, error) {
	none := ""
	lease := Lease{Profile: profile, State: LeaseHibernated}
	return w.replaceWhere(ctx, "binding.ReplaceIdle", bindingID, Filter{Epoch: &epoch, Generation: &generation, RunID: &none}, claimName, lease)
}

func (w *Writer) replaceWhere(ctx context.Context, op, bindingID string, f Filter, claimName func(generation uint32) string, lease Lease) (Record, error) {
	epoch, generation := *f.Epoch, *f.Generation
	if claimName == nil || generation == math.MaxUint32 {
		return Record{}, misuse(op, "a lease needs a claim name and a generation")
	}
	lease.ClaimName = claimName(generation + 1)
	r, err := w.update(ctx, bindingID, f, func(r *Record) error { return r.replace(lease) })
	if errors.Is(err, ErrFenced) {
		r, err = w.standing(ctx, bindingID, func(r Record) bool {
			return r.Epoch == epoch && r.Generation == generation+1 && r.Lease != nil && r.Lease.ClaimName == lease.ClaimName
		})
	}
	return r, fail(ctx, err, op)
}

// replace is write 6 on the record. A run is carried over only if it has done
// nothing: no event, never an admission (the count only rises; the set empties
// again, model: ASIS_CARRY), and its end open.
func (r *Record) replace(lease Lease) error {
	if len(r.Ending) >= MaxEnding {
		return fault.New(fault.Capacity, "binding.Replace")
	}
	if run := r.Run; run != nil && (run.EventHead > 0 || run.Admissions > 0 || !run.End.Open()) {
		r.retireRun(false)
	}
	r.retireLease()
	r.Generation++
	r.Lease = &lease
	r.Revision++
	return nil
}

// Clear makes write 7: epoch and generation rise, head and interrupt are reset,
// run and lease move to ending. With claimName the binding gets a new lease at
// once, as in Replace; without it has none until the next Replace. It answers
// alike where the record has a later epoch. Faults: as Replace.
func (w *Writer) Clear(ctx context.Context, bindingID string, epoch, generation uint32, claimName func(generation uint32) string, profile string) (Record, error) {
	const op = "binding.Clear"
	if generation == math.MaxUint32 || epoch == math.MaxUint32 {
		return Record{}, misuse(op, "epoch or generation is at its end")
	}
	var lease *Lease
	if claimName != nil {
		lease = &Lease{ClaimName: claimName(generation + 1), Profile: profile, State: LeaseClaiming}
	}
	f := Filter{Epoch: &epoch, Generation: &generation}
	r, err := w.update(ctx, bindingID, f, func(r *Record) error { return r.clear(lease) })
	if errors.Is(err, ErrFenced) {
		r, err = w.standing(ctx, bindingID, func(r Record) bool { return r.Epoch > epoch })
	}
	return r, fail(ctx, err, op)
}

// clear is write 7 on the record. The run is not dropped (model: M_CLEAR) and
// not left without an end (ASIS_CLEAR): it is concluded like any other.
func (r *Record) clear(lease *Lease) error {
	if len(r.Ending) >= MaxEnding {
		return fault.New(fault.Capacity, "binding.Clear")
	}
	r.retireRun(false)
	r.retireLease()
	r.Epoch++
	r.Generation++
	r.Head = Head{}
	r.Interrupt, r.Resumed = nil, nil
	if lease != nil {
		l := *lease
		r.Lease = &l
	}
	r.Revision++
	return nil
}

// UpdateLease changes the lease of one generation: what became known of its
// claim, instance or worker. change must be safe to repeat. Faults: stale_lease
// for another generation or without a lease, not_found.
func (w *Writer) UpdateLease(ctx context.Context, bindingID string, epoch, generation uint32, change func(*Lease)) (Record, error) {
	r, err := w.update(ctx, bindingID, Filter{Epoch: &epoch, Generation: &generation}, func(r *Record) error {
		if r.Lease == nil {
			return ErrFenced
		}
		name := r.Lease.ClaimName
		change(r.Lease)
		r.Lease.ClaimName = name // the name is the generation's and never changes
		return nil
	})
	return r, fail(ctx, err, "binding.UpdateLease")
}

// standing reads the record after a write did not match, and gives it where it
// shows that the write, or one like it, was made.
func (w *Writer) standing(ctx context.Context, bindingID string, stands func(Record) bool) (Record, error) {
	r, err := w.store.Load(ctx, bindingID)
	switch {
	case err != nil:
		return Record{}, err
	case !stands(r):
		return Record{}, ErrFenced
	}
	return r, nil
}
