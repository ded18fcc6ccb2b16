package linearizability

import (
	"context"

	"cofferdam.dev/pkg/binding"
)

// planted are the kinds of writes that are made without their fence, to see that
// the checker finds each.
func planted() []kind { return []kind{opCommit, opReplace, opAdmit, opPut} }

// plant makes one write as it would be without its fence, where the fence would
// have refused it: the grant's generation is over, or another revision stands. It
// is recorded as the success that its caller would have seen.
func (c *client) plant(ctx context.Context, v *view) error {
	if c.plan.Plant == opPut {
		return c.plantPut(ctx, v)
	}
	for range 2 { // by now nobody can hold the generation of the view
		if err := c.replace(ctx, v); err != nil {
			return err
		}
		w, err := c.look(ctx, v.id)
		if err != nil {
			return nil //nolint:nilerr // the next turn plants it
		}
		if w.generation >= v.generation+2 {
			break
		}
		if err := c.replace(ctx, w); err != nil {
			return err
		}
	}
	if w, err := c.look(ctx, v.id); err != nil || w.generation < v.generation+2 {
		return nil //nolint:nilerr // the next turn plants it
	}
	c.plants++
	op := c.operation(v, c.plan.Plant, c.name())
	unfenced := func(change func(*binding.Record)) error {
		_, err := c.stores.records.Update(ctx, v.id, binding.Filter{}, func(r *binding.Record) error {
			change(r)
			return nil
		})
		return err
	}
	switch c.plan.Plant {
	case opCommit:
		return c.do(ctx, op, func(context.Context) (o Outcome, err error) {
			err = unfenced(func(r *binding.Record) {
				r.Head.Revision, r.Head.RunID = op.Expected+1, op.Run
			})
			return Outcome{Revision: op.Expected + 1}, err
		})
	case opReplace:
		op.Run = ""
		return c.do(ctx, op, func(context.Context) (Outcome, error) {
			return Outcome{Revision: uint64(op.Generation) + 1}, unfenced(func(r *binding.Record) { r.Generation = op.Generation + 1 })
		})
	case opAdmit:
		op.Effect = "planted"
		return c.do(ctx, op, func(ctx context.Context) (Outcome, error) {
			_, err := c.stores.records.InsertRow(ctx, binding.Row{
				RowKey:     binding.RowKey{BindingID: v.id, Epoch: 1, RunID: v.run, Key: op.Effect},
				Generation: v.generation, Nonce: op.ID, State: binding.RowConcluded, Kind: "tool", Outcome: []byte(op.ID),
			})
			return Outcome{Body: op.ID}, err
		})
	case opStart, opAppend, opPut, opGet:
	}
	return nil
}

// plantPut writes over a revision that the same client has replaced already; its
// store compares none.
func (c *client) plantPut(ctx context.Context, v *view) error {
	if v.used {
		return nil
	}
	before := c.told[done]
	err := c.putAt(ctx, v, "record-0", 0)
	c.plants += c.told[done] - before
	return err
}
