package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func effectAfterEnd(x *world) {
	id, g := x.boundRunning()
	var c counter
	e := binding.NewEffects(x.w)
	_, err := e.Do(x.ctx, g, tool("before"), c.act)
	x.must(err)
	_, err = x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	_, err = e.Do(x.ctx, g, tool("k"), c.act)
	x.wantFault(err, fault.Cancelled)
	out, err := e.Do(x.ctx, g, tool("before"), c.act) // has happened, and is still answered
	x.must(err)
	if !out.Replayed {
		x.Fatalf("%+v", out)
	}
	x.wantCount(&c, 1)
	if r := x.load(id).Run; len(r.Admitted) != 0 || r.Admissions != 1 {
		x.Fatalf("%+v", r)
	}
}

func effectUnknown(x *world) {
	id, g := x.boundRunning()
	var c counter
	e := binding.NewEffects(x.w)
	ctx, cancel := context.WithCancel(x.ctx)
	for key, act := range map[string]func(context.Context) ([]byte, error){
		"error": func(ctx context.Context) ([]byte, error) {
			_, _ = c.act(ctx)
			return nil, errors.New("connection reset")
		},
		"caller gone": func(ctx context.Context) ([]byte, error) {
			_, _ = c.act(ctx)
			cancel()
			return nil, ctx.Err()
		},
		"too large": func(ctx context.Context) ([]byte, error) {
			_, err := c.act(ctx)
			return make([]byte, binding.MaxOutcomeBytes+1), err
		},
	} {
		c.n.Store(0)
		with := x.ctx
		if key == "caller gone" {
			with = ctx
		}
		_, err := e.Do(with, g, tool(strings.ReplaceAll(key, " ", "-")), act)
		x.wantFault(err, fault.ToolOutcomeUnknown)
		for range 2 {
			_, err = e.Do(x.ctx, g, tool(strings.ReplaceAll(key, " ", "-")), c.act)
			x.wantFault(err, fault.ToolOutcomeUnknown)
		}
		x.wantCount(&c, 1)
	}
	if r := x.load(id).Run; len(r.Admitted) != 3 {
		x.Fatalf("a key without an outcome left: %v", r.Admitted)
	}
	x.finish(g, cancelled())
	if d := x.conclude(id, g.Envelope().RunID); d.SideEffects != binding.SideEffectsPossible {
		x.Fatalf("side effects %q", d.SideEffects)
	}
}

func effectRepeatable(x *world) {
	_, g := x.boundRunning()
	eff := tool("k")
	eff.Repeatable = true
	e := binding.NewEffects(x.w)
	for range 2 {
		_, err := e.Do(x.ctx, g, eff, func(context.Context) ([]byte, error) { return nil, errors.New("connection reset") })
		x.wantFault(err, fault.ToolOutcomeUnknown)
	}
	var c counter
	out, err := e.Do(x.ctx, g, eff, c.act)
	x.must(err)
	if out.Replayed {
		x.Fatalf("%+v", out)
	}
	out, err = e.Do(x.ctx, g, eff, c.act)
	x.must(err)
	if !out.Replayed || string(out.Body) != "body 1" {
		x.Fatalf("%+v", out)
	}
	x.wantCount(&c, 1)
}

func effectNotBegun(x *world) {
	id, g := x.boundRunning()
	e := binding.NewEffects(x.w)
	for range 2 {
		_, err := e.Do(x.ctx, g, tool("k"), func(context.Context) ([]byte, error) {
			return nil, fmt.Errorf("dial: %w", &binding.NotBegun{Err: fault.New(fault.ToolUnavailable, "test")})
		})
		x.wantFault(err, fault.ToolUnavailable)
	}
	if r := x.load(id).Run; len(r.Admitted) != 0 || r.Admissions != 2 {
		x.Fatalf("%+v", r)
	}
	var c counter
	_, err := e.Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	x.wantCount(&c, 1)
	// It does not go on for ever.
	for range 20 {
		_, err = e.Do(x.ctx, g, tool("never"), func(context.Context) ([]byte, error) { return nil, &binding.NotBegun{} })
		x.wantFault(err, fault.DependencyUnavailable)
	}
	rows, err := x.b.Rows(x.ctx, id, 1, g.Envelope().RunID)
	x.must(err)
	if len(rows) > 12 {
		x.Fatalf("%d rows", len(rows))
	}
}

func effectRecorded(x *world) {
	id, g := x.boundRunning()
	ctx, cancel := context.WithCancel(x.ctx)
	var c counter
	e := binding.NewEffects(x.w)
	out, err := e.Do(ctx, g, tool("k"), func(ctx context.Context) ([]byte, error) {
		cancel()
		return c.act(ctx)
	})
	x.must(err)
	if string(out.Body) != "body 1" {
		x.Fatalf("%+v", out)
	}
	out, err = e.Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	if !out.Replayed || len(x.load(id).Run.Admitted) != 0 {
		x.Fatalf("%+v, %+v", out, x.load(id).Run)
	}
	x.wantCount(&c, 1)
}

func effectKeyLeaves(x *world) {
	id, g := x.boundRunning()
	var during []string
	_, err := binding.NewEffects(x.w).Do(x.ctx, g, tool("k"), func(context.Context) ([]byte, error) {
		during = x.load(id).Run.Admitted
		return nil, nil
	})
	x.must(err)
	if r := x.load(id).Run; fmt.Sprint(during) != "[k]" || len(r.Admitted) != 0 || r.Admissions != 1 {
		x.Fatalf("during %v, after %+v", during, r)
	}
	// The outcome cannot be recorded: the key stays, and nobody is told of success.
	lost := x.tapped(func(op string) Fate {
		if op == "SettleRow" {
			return LoseRequest
		}
		return Deliver
	})
	var c counter
	_, err = binding.NewEffects(lost.w).Do(x.ctx, g, tool("k2"), c.act)
	x.wantFault(err, fault.ToolOutcomeUnknown)
	if r := x.load(id).Run; fmt.Sprint(r.Admitted) != "[k2]" || r.Admissions != 2 {
		x.Fatalf("%+v", r)
	}
	x.wantCount(&c, 1)
}

func effectCapacity(x *world) {
	id, g := x.boundRunning()
	_, err := x.b.Update(x.ctx, id, binding.Filter{}, func(r *binding.Record) error {
		for i := range binding.MaxAdmitted - 1 {
			r.Run.Admitted = append(r.Run.Admitted, fmt.Sprint(i))
			r.Run.Admissions++
		}
		return nil
	})
	x.must(err)
	var c counter
	e := binding.NewEffects(x.w)
	_, err = e.Do(x.ctx, g, tool("last"), func(ctx context.Context) ([]byte, error) {
		if _, err := e.Do(ctx, g, tool("one-too-many"), c.act); !fault.Is(err, fault.Capacity) {
			return nil, fmt.Errorf("got %w", err)
		}
		return nil, nil
	})
	x.must(err)
	x.wantCount(&c, 0)
	_, err = e.Do(x.ctx, g, tool("one-too-many"), c.act)
	x.must(err)
	x.wantCount(&c, 1)
}

func effectScope(x *world) {
	e := binding.NewEffects(x.w)
	var c counter
	id, g := x.boundRunning()
	do := func(g fence.Grant) {
		x.Helper()
		out, err := e.Do(x.ctx, g, tool("k"), c.act)
		x.must(err)
		if out.Replayed {
			x.Fatalf("met another run's outcome: %s", out.Body)
		}
	}
	do(g)
	_, other := x.boundRunning()
	do(other)
	x.finish(g, cancelled())
	x.conclude(id, g.Envelope().RunID)
	do(x.running(id, "second"))
	x.clear(id)
	x.concludeAll(id)
	do(x.running(id, "first"))
	x.wantCount(&c, 4)
}

func effectInsertLost(x *world) {
	id, g := x.boundRunning()
	var c counter
	for key, fate := range map[string]Fate{"request": LoseRequest, "reply": LoseReply} {
		c.n.Store(0)
		lost := x.tapped(func(op string) Fate {
			if op == "InsertRow" {
				return fate
			}
			return Deliver
		})
		_, err := binding.NewEffects(lost.w).Do(x.ctx, g, tool(key), c.act)
		x.wantFault(err, fault.DependencyUnavailable)
		x.wantCount(&c, 0)
		_, err = binding.NewEffects(x.w).Do(x.ctx, g, tool(key), c.act)
		x.must(err)
		x.wantCount(&c, 1)
	}
	// One lost reply is settled by reading back one's own nonce.
	var n int
	lost := x.tapped(func(op string) Fate {
		if op == "InsertRow" {
			n++
			if n == 1 {
				return LoseReply
			}
		}
		return Deliver
	})
	_, err := binding.NewEffects(lost.w).Do(x.ctx, g, tool("settled"), c.act)
	x.must(err)
	x.wantCount(&c, 2)
	if r := x.load(id).Run; len(r.Admitted) != 0 {
		x.Fatalf("%+v", r)
	}
}

func effectDeadProcess(x *world) {
	_, g := x.boundRunning()
	x.leaveDispatched(g, tool("k"))
	var c counter
	ctx, cancel := context.WithTimeout(x.ctx, 100*time.Millisecond)
	defer cancel()
	// Another process cannot know that the first one is dead, and waits.
	_, err := binding.NewEffects(x.w).Do(ctx, g, tool("k"), c.act)
	x.wantFault(err, fault.ToolOutcomeUnknown)
	// With a limit it knows when to stop waiting; a repeatable effect then runs.
	eff := tool("k")
	eff.Repeatable, eff.Limit = true, time.Nanosecond
	future := binding.NewWriter(x.b, func() time.Time { return time.Now().Add(time.Minute) })
	out, err := binding.NewEffects(future).Do(x.ctx, g, eff, c.act)
	x.must(err)
	if out.Replayed {
		x.Fatalf("%+v", out)
	}
	x.wantCount(&c, 1)
}

// allEffectsBounded: what a worker did cannot make the conclusion of its run
// read without bound.
func allEffectsBounded(x *world) {
	id, g := x.boundRunning()
	e := binding.NewEffects(x.w)
	var c counter
	_, err := e.Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	rows, err := x.b.Rows(x.ctx, id, 1, g.Envelope().RunID)
	x.must(err)
	if len(rows) != 1 || rows[0].State != binding.RowConcluded || rows[0].Outcome != nil {
		x.Fatalf("rows %+v", rows)
	}
	_, err = x.b.Update(x.ctx, id, binding.Filter{}, func(r *binding.Record) error {
		r.Run.Admissions = binding.MaxAdmissions
		return nil
	})
	x.must(err)
	_, err = e.Do(x.ctx, g, tool("one-too-many"), c.act)
	x.wantFault(err, fault.Capacity)
	x.wantCount(&c, 1)
	again, err := e.Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	if !again.Replayed {
		x.Fatalf("an effect of before is not answered from the ledger")
	}
}
