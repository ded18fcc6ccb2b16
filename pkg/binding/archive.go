package binding

import (
	"context"
	"slices"
)

// passes bounds how often an archive goes over a tail: each pass trims, or finds
// that another replica did.
const passes = 16

// Archive copies the tail of a run, active or ending, to chunks and trims it. It
// is repeatable, by any replica at any moment, and does nothing for a run that
// is not in the record.
func (w *Writer) Archive(ctx context.Context, bindingID, runID string) error {
	return fail(ctx, w.archive(ctx, bindingID, runID), "binding.Archive")
}

// archive is the second half of write 2. What was read is committed, so it may
// become a chunk; where a chunk of that key already stands, the tail is trimmed
// to that chunk's end only (model: ASIS_CHUNK, with which events vanished).
func (w *Writer) archive(ctx context.Context, bindingID, runID string) error {
	for range passes {
		r, err := w.store.Load(ctx, bindingID)
		if err != nil {
			return err
		}
		run, _ := r.find(runID)
		if run == nil || len(run.Tail) == 0 {
			return nil
		}
		ours := Chunk{RunID: runID, First: run.TailFirst(), Batches: run.Tail}
		stands, err := settled(ctx, func() (Chunk, error) { return w.store.PutChunk(ctx, ours) })
		if err != nil {
			return err
		}
		_, err = w.update(ctx, bindingID, Filter{}, func(r *Record) error { return r.trim(runID, stands) })
		if err != nil {
			return err
		}
	}
	return nil
}

// trim takes out of the tail what the chunk has, and nothing else.
func (r *Record) trim(runID string, c Chunk) error {
	run, _ := r.find(runID)
	if run == nil || run.TailFirst() != c.First {
		return errStands // trimmed by somebody else, or concluded
	}
	n := len(c.Batches)
	if n == 0 || n > len(run.Tail) || !slices.EqualFunc(run.Tail[:n], c.Batches, Batch.same) {
		return errBroken
	}
	run.Tail = slices.Clone(run.Tail[n:])
	if len(run.Tail) == 0 {
		run.Tail = nil
	}
	return nil
}
