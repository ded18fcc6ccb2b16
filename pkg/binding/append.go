package binding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// archives is how often one append or terminal copies the tail to a chunk. One
// is enough unless another replica archives at the same moment.
const archives = 4

// Append makes write 2: the batch follows event_head, under the grant's
// envelope and the owner's name, while the run's end is open. It answers with
// the event head after the batch.
//
// The same batch again, under its nonce, answers as the first time, also when
// the run has ended since: that is how a caller settles a batch whose fate is
// unknown, and it has to repeat it unchanged until it is settled. Faults:
// stale_lease; cancelled with ErrEnded where the end is decided;
// invalid_request for a batch that is empty, over a bound or not JSON.
func (w *Writer) Append(ctx context.Context, g fence.Grant, owner string, b Batch) (eventHead uint64, err error) {
	const op = "binding.Append"
	f, e, err := filterOf(g)
	if err != nil {
		return 0, err
	}
	if b, err = b.normal(op); err != nil {
		return 0, err
	}
	err = w.withRoom(ctx, e.BindingID, e.RunID, func() error {
		_, err := w.update(ctx, e.BindingID, f, func(r *Record) error { return r.append(owner, b) })
		return err
	})
	if errors.Is(err, ErrFenced) || errors.Is(err, errArchived) {
		err = w.landed(ctx, e.BindingID, e.RunID, b)
	}
	if err != nil {
		return 0, fail(ctx, err, op)
	}
	return b.Next(), nil
}

// append is write 2 on the record. Epoch, generation and run are the filter's
// (model: M_GEN); what is checked here is whose batch stands at this place
// (M_NONCE, ASIS_AGAIN).
func (r *Record) append(owner string, b Batch) error {
	run := r.Run
	switch {
	case run == nil || run.Owner != owner:
		return ErrFenced
	case run.holds(b):
		return errStands
	case b.First < run.TailFirst():
		return errArchived
	case !run.End.Open():
		return ErrEnded
	case b.First != run.EventHead:
		return ErrFenced
	case !run.fits(b):
		return errTailFull
	}
	run.push(b)
	return nil
}

// withRoom repeats a write for which the tail was full, after archiving it.
func (w *Writer) withRoom(ctx context.Context, bindingID, runID string, write func() error) error {
	var err error
	for range archives {
		if err = write(); !errors.Is(err, errTailFull) {
			return err
		}
		if aerr := w.archive(ctx, bindingID, runID); aerr != nil {
			return aerr
		}
	}
	return err
}

// landed looks for a batch in a majority read, after a write did not match: it
// may have been written by an earlier try, and the run may have moved on since
// (model: ASIS_AGAIN). It answers ErrFenced where the batch does not stand.
func (w *Writer) landed(ctx context.Context, bindingID, runID string, b Batch) error {
	r, err := w.store.Load(ctx, bindingID)
	if err != nil {
		return err
	}
	if run, _ := r.find(runID); run != nil && run.holds(b) {
		return nil
	}
	chunks, err := w.store.Chunks(ctx, runID, b.First, 1)
	switch {
	case err != nil:
		return err
	case len(chunks) == 1 && holds(chunks[0].Batches, b):
		return nil
	default:
		return ErrFenced
	}
}

// normal is the batch as it is stored: compact JSON, within its bounds.
func (b Batch) normal(op string) (Batch, error) {
	bad := func(what string) error { return fault.New(fault.InvalidRequest, op, fault.Detail(what)) }
	switch {
	case b.Nonce == "" || len(b.Nonce) > 64:
		return b, bad("batch.nonce: 1 to 64 bytes")
	case len(b.Events) == 0 || len(b.Events) > MaxBatchEvents:
		return b, bad("batch.events: 1 to 1024")
	case b.Bytes() > MaxBatchBytes:
		return b, fault.New(fault.RequestTooLarge, op, fault.Detail("batch.events: at most 512 KiB"))
	}
	out := Batch{Nonce: b.Nonce, First: b.First, Events: make([]json.RawMessage, len(b.Events))}
	for i, e := range b.Events {
		var c bytes.Buffer
		if err := json.Compact(&c, e); err != nil {
			return b, fault.Wrap(err, fault.InvalidRequest, op, fault.Detail("batch.events: JSON"))
		}
		out.Events[i] = c.Bytes()
	}
	return out, nil
}
