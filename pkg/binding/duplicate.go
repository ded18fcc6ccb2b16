package binding

import (
	"context"
	"time"

	"cofferdam.dev/pkg/fault"
)

// meet answers from a row that another attempt inserted. Nothing happens here,
// so nothing is admitted; the fence is asked again all the same, for a worker
// that was replaced must not be answered.
func (c *call) meet(ctx context.Context, row Row) (out Outcome, again bool, err error) {
	if row.State == RowRevoked {
		return Outcome{}, false, c.refusal(ctx)
	}
	if row.Kind != c.eff.Kind || row.ArgsDigest != c.eff.ArgsDigest {
		return Outcome{}, false, fault.New(fault.IdempotencyConflict, "binding.Do")
	}
	if row.State == RowDispatched {
		if row, err = c.await(ctx, row); err != nil {
			return Outcome{}, false, err
		}
	}
	if err := c.current(ctx); err != nil {
		return Outcome{}, false, err
	}
	switch row.State {
	case RowConcluded:
		return Outcome{Body: row.Outcome, Replayed: true}, false, nil
	case RowNotDispatched:
		return Outcome{}, true, nil
	case RowDispatched, RowRevoked:
	}
	return Outcome{}, c.eff.Repeatable, unknown(errDead)
}

// await waits while another attempt may still record an outcome. It gives the
// row as it was last seen: still dispatched when that attempt is known to be
// dead, or has had longer than Limit.
func (c *call) await(ctx context.Context, row Row) (Row, error) {
	pause := pollFirst
	for row.State == RowDispatched {
		done, ours := c.e.under(row.Nonce)
		dead := ours && done == nil || c.eff.Limit > 0 && c.e.w.now().After(row.At.Add(c.eff.Limit+DispatchWindow+recordBound))
		if !dead {
			if err := wait(ctx, done, pause); err != nil {
				return row, unknown(err) // begun by somebody, and not known how it ended
			}
			pause = min(2*pause, pollMost)
		}
		next, err := c.e.w.store.LoadRow(ctx, row.RowKey)
		if err != nil {
			return row, unknown(err)
		}
		row = next
		if dead {
			break
		}
	}
	return row, nil
}

// wait returns when an attempt of this process is done, or after a pause.
func wait(ctx context.Context, done <-chan struct{}, pause time.Duration) error {
	if done == nil {
		return sleep(ctx, pause)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// current asks the fence again: stale_lease where the envelope is no longer the
// committed one.
func (c *call) current(ctx context.Context) error {
	now, err := c.e.w.Committed(ctx, c.env.BindingID)
	switch {
	case err != nil:
		return err
	case now.Epoch != c.env.Epoch || now.Generation != c.env.Generation || now.RunID != c.env.RunID:
		return ErrFenced
	}
	return nil
}

// refusal says why a row was revoked: the run is over, or the lease is.
func (c *call) refusal(ctx context.Context) error {
	if err := c.current(ctx); err != nil {
		return err
	}
	return ErrEnded
}
