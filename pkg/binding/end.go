package binding

import (
	"context"
	"errors"
	"slices"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// SetEnd makes write 3: the end is set where it is open. It answers with the end
// that stands, which may be another one's, also when the run has left service
// since: a cancel and a finish that race are decided here, and a cancel is
// acknowledged as what was decided. Anybody who holds a grant for the run may
// set it. Success and interrupted come from a head commit only; they are refused
// here, as a run that has no head has not succeeded. Fault: stale_lease.
func (w *Writer) SetEnd(ctx context.Context, g fence.Grant, e End) (stands End, err error) {
	const op = "binding.SetEnd"
	f, env, err := filterOf(g)
	if err != nil {
		return End{}, err
	}
	if err := e.settable(op); err != nil {
		return End{}, err
	}
	r, err := w.update(ctx, env.BindingID, f, func(r *Record) error { return r.setEnd(e) })
	if err == nil && r.Run != nil {
		return r.Run.End, nil
	}
	if errors.Is(err, ErrFenced) {
		stands, err = w.endOf(ctx, env)
	}
	return stands, fail(ctx, err, op)
}

// setEnd never changes an end that is set (model: M_END).
func (r *Record) setEnd(e End) error {
	switch {
	case r.Run == nil:
		return ErrFenced
	case !r.Run.End.Open():
		return errStands
	}
	r.Run.End = e
	return nil
}

// endOf is the end of a run that has left service, under the very generation of
// the envelope; ErrFenced where there is none.
func (w *Writer) endOf(ctx context.Context, env fence.Envelope) (End, error) {
	r, err := w.store.Load(ctx, env.BindingID)
	if err != nil {
		return End{}, err
	}
	if run, entry := r.find(env.RunID); entry != nil {
		if entry.Epoch != env.Epoch || entry.Generation != env.Generation {
			return End{}, ErrFenced
		}
		return run.End, nil
	}
	d, err := w.store.LoadRun(ctx, env.RunID)
	switch {
	case notFound(err):
		return End{}, ErrFenced
	case err != nil:
		return End{}, err
	case d.BindingID != env.BindingID || d.Epoch != env.Epoch || d.Generation != env.Generation:
		return End{}, ErrFenced
	}
	return d.End, nil
}

func (e End) settable(op string) error {
	ok := false
	switch e.Kind {
	case EndCancelling:
		ok = slices.Contains([]string{"client_request", "disconnect", "deadline", "shutdown"}, e.Reason)
	case EndError:
		ok = fault.Code(e.Reason).Known()
	case EndLost:
		ok = true
	case EndOpen, EndSuccess, EndInterrupted:
	}
	if e.RetryAfterSeconds > MaxRetryAfterSeconds || e.Kind != EndError && e.RetryAfterSeconds > 0 {
		ok = false
	}
	if !ok {
		return misuse(op, "this end cannot be set")
	}
	return nil
}

// Terminate makes the rest of write 3 for the replica that drives the run:
// closing events and the terminal (the last event of the batch), their agreement
// with the end, and the move of the run from run to ending, in one write. e is
// the end that the terminal tells. It answers with the end that stands.
//
// The end must be decided and the admitted effects revoked (Revoke) before, so
// that what the terminal says of side effects stays true. The same batch again
// answers as the first time. Faults: stale_lease, and internal with ErrEndOpen,
// ErrEndDisagrees or ErrNotRevoked.
func (w *Writer) Terminate(ctx context.Context, g fence.Grant, owner string, b Batch, e End) (stands End, err error) {
	const op = "binding.Terminate"
	f, env, err := filterOf(g)
	if err != nil {
		return End{}, err
	}
	if b, err = b.normal(op); err != nil {
		return End{}, err
	}
	if err := w.revoked(ctx, env.BindingID, env.RunID); err != nil {
		return End{}, fail(ctx, err, op)
	}
	err = w.withRoom(ctx, env.BindingID, env.RunID, func() error {
		_, err := w.update(ctx, env.BindingID, f, func(r *Record) error {
			err := r.terminate(owner, b, e)
			if r.Run != nil {
				stands = r.Run.End
			}
			return err
		})
		return err
	})
	if errors.Is(err, ErrFenced) {
		if err = w.landed(ctx, env.BindingID, env.RunID, b); err == nil {
			return e, nil // our own terminal, which agreed with the end when it was written
		}
	}
	if err != nil {
		return stands, fail(ctx, err, op)
	}
	return e, nil
}

// terminate is the one write in which a run gets its terminal and leaves
// service. With the removal of the run in its place, its log could be lost
// (model: ASIS_END).
func (r *Record) terminate(owner string, b Batch, e End) error {
	run := r.Run
	switch {
	case run == nil || run.Owner != owner || b.First != run.EventHead:
		return ErrFenced
	case run.End.Open():
		return ErrEndOpen
	case run.End != e:
		return ErrEndDisagrees
	case !run.fits(b):
		return errTailFull
	}
	run.push(b)
	r.retireRun(true)
	r.Revision++
	return nil
}
