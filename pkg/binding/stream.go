package binding

import (
	"context"
	"errors"
)

// errNoStream says that a run has no first stream to take, or not any more.
var errNoStream = errors.New("binding: no first stream to take")

// TakeStream takes the first stream of an active run that awaits one. Of several that
// take it, in several processes, one is told that it is first; a run that awaits
// none, or has ended, has no first stream. It decides nothing about the run: its
// only use is that who was first cancels the run by going away. Fault: not_found
// without a record.
func (w *Writer) TakeStream(ctx context.Context, bindingID, runID string) (first bool, err error) {
	nonce := newNonce()
	_, err = w.update(ctx, bindingID, Filter{RunID: &runID}, func(r *Record) error { return r.takeStream(runID, nonce) })
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrFenced), errors.Is(err, errNoStream):
		return false, nil
	}
	return false, fail(ctx, err, "binding.TakeStream")
}

// takeStream may be called again under the same nonce, where its reply was lost.
func (r *Record) takeStream(runID, nonce string) error {
	run := r.Run
	switch {
	case run == nil || run.ID != runID:
		return ErrFenced
	case run.StreamNonce == nonce:
		return errStands
	case !run.AwaitsStream || run.StreamNonce != "":
		return errNoStream
	}
	run.StreamNonce = nonce
	return nil
}
