package binding

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// call is one Do.
type call struct {
	e      *Effects
	filter Filter
	env    fence.Envelope
	eff    Effect
	act    func(context.Context) ([]byte, error)
}

func (c *call) rowKey(n int) RowKey {
	return RowKey{BindingID: c.env.BindingID, Epoch: c.env.Epoch, RunID: c.env.RunID, Key: attemptKey(c.eff.Key, n)}
}

// attempt is write 4 under the key of the n-th attempt. again says that this key
// is used up without an effect that stands in the way, and err then why.
func (c *call) attempt(ctx context.Context, n int) (out Outcome, again bool, err error) {
	key := c.rowKey(n)
	stands, err := c.e.w.store.LoadRow(ctx, key)
	switch {
	case err == nil:
		return c.meet(ctx, stands)
	case !notFound(err):
		return Outcome{}, false, err
	}
	leave, err := c.e.enter(ctx, c.eff)
	if err != nil {
		return Outcome{}, false, err
	}
	defer leave()
	if err := c.admit(ctx, key.Key); err != nil {
		return Outcome{}, false, err
	}
	nonce, end := c.e.begin()
	defer end()
	from := time.Now() // before the insert: what a slow insert took counts
	stands, err = settled(ctx, func() (Row, error) {
		return c.e.w.store.InsertRow(ctx, Row{
			RowKey: key, Generation: c.env.Generation, Nonce: nonce, State: RowDispatched,
			Kind: c.eff.Kind, ArgsDigest: c.eff.ArgsDigest, At: c.e.w.now().UTC(),
		})
	})
	switch {
	case err != nil:
		// The row may still arrive. Nobody will act on it; say so if possible.
		c.record(ctx, key, nonce, RowNotDispatched, nil)
		return Outcome{}, false, err
	case stands.Nonce != nonce:
		leave() // another one's window is not waited for in here
		out, again, err = c.meet(ctx, stands)
		c.release(ctx, key)
		return out, again, err
	}
	out, err = c.dispatch(ctx, key, nonce, from.Add(DispatchWindow))
	return out, false, err
}

// admit is the first half of write 4: the key joins the admitted ones while the
// end is open, under the envelope (model: M_GENA), and the count of admissions
// rises, which no take-out lowers again. It needs no nonce: a repeat is harmless.
func (c *call) admit(ctx context.Context, key string) error {
	_, err := c.e.w.update(ctx, c.env.BindingID, c.filter, func(r *Record) error { return r.admit(key, c.eff) })
	return err
}

func (r *Record) admit(key string, eff Effect) error {
	run := r.Run
	switch {
	case run == nil:
		return ErrFenced
	case !run.End.Open():
		return ErrEnded
	case eff.NeedsGrant && !run.granted(cmp.Or(eff.CallID, key), eff.ArgsDigest):
		return notGranted("binding.Do")
	case slices.Contains(run.Admitted, key):
		return nil
	case len(run.Admitted) >= MaxAdmitted, run.Admissions >= MaxAdmissions:
		return fault.New(fault.Capacity, "binding.Do", fault.RetryAfter(time.Second))
	}
	run.Admitted = append(run.Admitted, key)
	run.Admissions++
	return nil
}

// dispatch lets the effect happen. The row with this attempt's own nonce is the
// permission (model: M_INSERT, ASIS_ROW).
func (c *call) dispatch(ctx context.Context, key RowKey, nonce string, by time.Time) (Outcome, error) {
	if err := ctx.Err(); err != nil || !time.Now().Before(by) {
		c.record(ctx, key, nonce, RowNotDispatched, nil)
		if err == nil {
			err = fault.Wrap(errLate, fault.DependencyUnavailable, "binding.Do", fault.SideEffects("none"))
		}
		return Outcome{}, err
	}
	actx, cancel := context.WithValue(ctx, beginByKey{}, by), context.CancelFunc(func() {})
	if c.eff.Limit > 0 {
		actx, cancel = context.WithTimeout(actx, c.eff.Limit)
	}
	defer cancel()
	body, err := c.act(actx)
	var notBegun *NotBegun
	switch {
	case errors.As(err, &notBegun):
		c.record(ctx, key, nonce, RowNotDispatched, nil)
		return Outcome{}, notBegun.reason()
	case err != nil:
		return Outcome{}, unknown(err)
	case len(body) > MaxOutcomeBytes:
		return Outcome{}, unknown(errTooLarge)
	case !c.record(ctx, key, nonce, RowConcluded, body):
		return Outcome{}, unknown(errUnwritten)
	}
	return Outcome{Body: body}, nil
}

// reason is the fault of what did not begin.
func (e *NotBegun) reason() error {
	if e.Err == nil {
		return fault.New(fault.DependencyUnavailable, "binding.Do", fault.SideEffects("none"))
	}
	return fault.From(e.Err, "binding.Do")
}

// record settles the row and, once it has an outcome, takes the key out of the
// admitted ones. It does so also after the caller has gone. It reports whether
// the outcome stands.
func (c *call) record(ctx context.Context, key RowKey, nonce string, to RowState, outcome []byte) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordBound)
	defer cancel()
	store := c.e.w.store
	done, err := settled(ctx, func() (bool, error) { return store.SettleRow(ctx, key, nonce, to, outcome) })
	if err != nil || !done { // an earlier try of ours may have got there
		row, lerr := store.LoadRow(ctx, key)
		done = lerr == nil && row.Nonce == nonce && row.State == to
	}
	if done {
		c.takeOut(ctx, key.Key)
	}
	return done
}

// release takes out a key that this attempt has admitted while another one's row
// had its outcome already. A row that has none keeps its key.
func (c *call) release(ctx context.Context, key RowKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordBound)
	defer cancel()
	if row, err := c.e.w.store.LoadRow(ctx, key); err == nil && row.State != RowDispatched {
		c.takeOut(ctx, key.Key)
	}
}

// takeOut may fail: a key that stays costs one of MaxAdmitted places until the
// run ends, and nothing else, because its row is there.
func (c *call) takeOut(ctx context.Context, key string) {
	_, _ = c.e.w.update(ctx, c.env.BindingID, c.filter, func(r *Record) error {
		if r.Run == nil || !slices.Contains(r.Run.Admitted, key) {
			return errStands
		}
		r.Run.Admitted = slices.DeleteFunc(r.Run.Admitted, func(k string) bool { return k == key })
		return nil
	})
}
