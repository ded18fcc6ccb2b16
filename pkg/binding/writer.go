package binding

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

const (
	// tries is how often a write is sent whose outcome the store did not tell.
	tries = 4
	// firstPause is waited after the first of them; each further one is four times
	// longer.
	firstPause = 10 * time.Millisecond
)

// Writer makes the ten writes of the contract's fencing file on a Backend. It is
// safe for concurrent use and keeps no state: any number of replicas may have
// one on the same store.
//
// Each write is safe to repeat. When the store fails, so that a write may have
// happened or not, the Writer sends it again a few times: a conditional write
// that first looks for its own nonce or state in the record, and so finds an
// earlier try of itself. What stays unsettled is the fault dependency_unavailable,
// or the context's; the caller repeats the same call or gives up, and both are
// safe.
//
// Whatever does not match the record is the fault stale_lease, for which
// errors.Is(err, ErrFenced) also holds, and then nothing was written; unless the
// answer to an earlier try was lost, and what it wrote was overtaken by others
// before the next one. The record tells.
type Writer struct {
	store Backend
	now   func() time.Time
}

// NewWriter writes to b. now is time.Now outside of tests; it stamps documents
// and decides nothing.
func NewWriter(b Backend, now func() time.Time) *Writer { return &Writer{store: b, now: now} }

// Backend that the writer writes to.
func (w *Writer) Backend() Backend { return w.store }

// Committed implements fence.Reader.
func (w *Writer) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	c, err := w.store.Committed(ctx, bindingID)
	if errors.Is(err, ErrNotFound) {
		return fence.Committed{}, fence.ErrUnknownBinding
	}
	return c, err
}

// Committed is what the record says about who speaks for it.
func (r Record) Committed() fence.Committed {
	c := fence.Committed{BindingID: r.ID, Epoch: r.Epoch, Generation: r.Generation}
	if r.Run != nil {
		c.RunID, c.RunDeadline, c.Owner = r.Run.ID, r.Run.Deadline, r.Run.Owner
	}
	if r.Lease != nil {
		c.Instance = r.Lease.InstanceUID
	}
	return c
}

// update makes one conditional write and settles it. change answers errStands
// where an earlier try of the same write stands in the record already; then
// nothing is written again, and that is success.
func (w *Writer) update(ctx context.Context, bindingID string, f Filter, change func(*Record) error) (Record, error) {
	var seen Record
	r, err := settled(ctx, func() (Record, error) {
		return w.store.Update(ctx, bindingID, f, func(r *Record) error {
			if err := change(r); err != nil {
				seen = *r
				return refusal{err}
			}
			r.UpdatedAt = w.now().UTC()
			return nil
		})
	})
	if errors.Is(err, errStands) {
		return seen, nil
	}
	return r, err
}

// settled repeats do while its outcome is unknown. do must be safe to repeat.
func settled[T any](ctx context.Context, do func() (T, error)) (T, error) {
	pause := firstPause
	for try := 1; ; try++ {
		v, err := do()
		if decided(err) || try == tries || ctx.Err() != nil {
			return v, err
		}
		if perr := sleep(ctx, pause); perr != nil {
			return v, err
		}
		pause *= 4
	}
}

// sleep waits, or ends with the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// filterOf is what every write within a run names (protocol text, "Identity and
// fencing envelope"). A grant without a run matches none.
func filterOf(g fence.Grant) (Filter, fence.Envelope, error) {
	if err := g.Validate(); err != nil {
		return Filter{}, fence.Envelope{}, err
	}
	e := g.Envelope()
	if e.RunID == "" {
		return Filter{}, e, fault.Wrap(ErrFenced, fault.StaleLease, "binding.Filter")
	}
	return Filter{Epoch: &e.Epoch, Generation: &e.Generation, RunID: &e.RunID}, e, nil
}

func newNonce() string { return rand.Text() }
