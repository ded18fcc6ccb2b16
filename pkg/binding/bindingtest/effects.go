package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func effectInvariants() []Invariant {
	return []Invariant{
		{"T44", "effect_once", "An effect happens once for its key; again with the same arguments it is answered from the ledger.", effectOnce},
		{"T45", "effect_other_arguments", "The same key with other arguments, or of another kind, is a conflict.", effectOtherArguments},
		{"T46", "effect_race", "Of many at once, in several processes, one lets it happen, and all get its outcome.", effectRace},
		{"T47", "effect_replaced", "No effect of another generation, epoch or run happens, also when it was admitted at the door before.", effectReplaced},
		{"T48", "effect_revoked", "A broker that comes late, after the run was replaced and concluded, loses the insert and does nothing.", effectRevoked},
		{"T49", "effect_own_nonce", "Only a row with one's own nonce is the permission: a lost reply does not make another's row one's own.", effectOwnNonce},
		{"T50", "effect_after_end", "After the end is decided no effect begins.", effectAfterEnd},
		{"T51", "effect_unknown", "When nobody knows whether an effect happened, each later call says so, and it does not happen again.", effectUnknown},
		{"T52", "effect_repeatable", "A repeatable effect of an attempt that died runs again, once more each time.", effectRepeatable},
		{"T53", "effect_not_begun", "An effect that did not begin may be tried again under its key.", effectNotBegun},
		{"T54", "effect_recorded", "The outcome is recorded also when the caller has gone.", effectRecorded},
		{"T55", "effect_key_leaves", "A key leaves the admitted ones with its outcome and not before; the count of admissions never falls.", effectKeyLeaves},
		{"T56", "effect_capacity", "No more than 64 effects of a run are open at once.", effectCapacity},
		{"T57", "effect_scope", "The scope of a key is its run: another run's outcome cannot be met.", effectScope},
		{"T58", "effect_insert_lost", "An insert whose outcome stays unknown begins nothing, and does not spoil the key.", effectInsertLost},
		{"T59", "effect_dead_process", "What a process that died left dispatched is unknown to its successor.", effectDeadProcess},
	}
}

func tool(key string) binding.Effect {
	return binding.Effect{Key: key, Kind: "tool", ArgsDigest: "args"}
}

// counter is an effect on the world.
type counter struct{ n atomic.Int32 }

func (c *counter) act(context.Context) ([]byte, error) {
	return fmt.Appendf(nil, "body %d", c.n.Add(1)), nil
}

func (x *world) wantCount(c *counter, want int32) {
	x.Helper()
	if n := c.n.Load(); n != want {
		x.Fatalf("the effect happened %d times, want %d", n, want)
	}
}

// admitOnly admits an effect and dies before its row.
func (x *world) admitOnly(g fence.Grant, key string) {
	x.Helper()
	dead := x.tapped(func(op string) Fate {
		if op == "InsertRow" {
			return LoseRequest
		}
		return Deliver
	})
	var c counter
	_, err := binding.NewEffects(dead.w).Do(x.ctx, g, tool(key), c.act)
	x.wantFault(err, fault.DependencyUnavailable)
	x.wantCount(&c, 0)
}

// leaveDispatched begins an effect and dies before its outcome.
func (x *world) leaveDispatched(g fence.Grant, eff binding.Effect) {
	x.Helper()
	_, err := binding.NewEffects(x.w).Do(x.ctx, g, eff, func(context.Context) ([]byte, error) { return nil, errors.New("connection lost") })
	x.wantFault(err, fault.ToolOutcomeUnknown)
}

func effectOnce(x *world) {
	_, g := x.boundRunning()
	var c counter
	here, elsewhere := binding.NewEffects(x.w), binding.NewEffects(x.w)
	for i, e := range []*binding.Effects{here, here, elsewhere} {
		out, err := e.Do(x.ctx, g, tool("k"), c.act)
		x.must(err)
		if string(out.Body) != "body 1" || out.Replayed != (i > 0) {
			x.Fatalf("call %d: %+v", i, out)
		}
	}
	x.wantCount(&c, 1)
}

func effectOtherArguments(x *world) {
	_, g := x.boundRunning()
	var c counter
	e := binding.NewEffects(x.w)
	_, err := e.Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	x.leaveDispatched(g, tool("k2"))
	for _, key := range []string{"k", "k2"} {
		other := tool(key)
		other.ArgsDigest = "other"
		_, err = e.Do(x.ctx, g, other, c.act)
		x.wantFault(err, fault.IdempotencyConflict)
		kind := tool(key)
		kind.Kind = "memory.put"
		_, err = e.Do(x.ctx, g, kind, c.act)
		x.wantFault(err, fault.IdempotencyConflict)
	}
	x.wantCount(&c, 1)
}

func effectRace(x *world) {
	id, g := x.boundRunning()
	processes := []*binding.Effects{binding.NewEffects(x.w), binding.NewEffects(x.w), binding.NewEffects(x.w)}
	var c counter
	var fresh atomic.Int32
	race(12, func(i int) {
		out, err := processes[i%3].Do(x.ctx, g, tool("k"), c.act)
		if err != nil || string(out.Body) != "body 1" {
			x.Errorf("%d: %+v, %v", i, out, err)
		}
		if !out.Replayed {
			fresh.Add(1)
		}
	})
	x.wantCount(&c, 1)
	if r := x.load(id).Run; fresh.Load() != 1 || len(r.Admitted) != 0 {
		x.Fatalf("%d say that they did it; admitted %v", fresh.Load(), r.Admitted)
	}
}

func effectReplaced(x *world) {
	x.replacements(func(what, id string, g fence.Grant) {
		x.Helper()
		var c counter
		if _, err := binding.NewEffects(x.w).Do(x.ctx, g, tool("k"), c.act); !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: %v", what, err)
		}
		x.wantCount(&c, 0)
		if r := x.load(id); r.Run != nil && r.Run.Admissions != 0 {
			x.Fatalf("%s: admitted: %+v", what, r.Run)
		}
	})
	// A worker that was replaced gets no stored outcome either.
	id, g := x.boundRunning()
	var c counter
	e := binding.NewEffects(x.w)
	_, err := e.Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	x.replace(id)
	_, err = e.Do(x.ctx, g, tool("k"), c.act)
	x.wantStale(err)
	x.wantCount(&c, 1)
}

func effectRevoked(x *world) {
	for what, act := range map[string]func(id string, g fence.Grant){
		"replaced":   func(id string, _ fence.Grant) { x.replace(id) },
		"cleared":    func(id string, _ fence.Grant) { x.clear(id) },
		"taken over": func(id string, g fence.Grant) { x.must(x.w.TakeOver(x.ctx, id, g.Envelope().RunID, owner, 0)) },
		"cancelled":  func(_ string, g fence.Grant) { x.finish(g, cancelled()) },
	} {
		id, g := x.boundRunning()
		run := g.Envelope().RunID
		var d binding.RunDocument
		late := x.tapped(once("InsertRow", func() { // admitted, and then slow
			act(id, g)
			d = x.conclude(id, run)
		}))
		var c counter
		_, err := binding.NewEffects(late.w).Do(x.ctx, g, tool("k"), c.act)
		if !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: %v", what, err)
		}
		x.wantCount(&c, 0)
		if d.SideEffects != binding.SideEffectsNone {
			x.Fatalf("%s: document %+v", what, d)
		}
		rows, err := x.b.Rows(x.ctx, id, 1, run)
		x.must(err)
		if len(rows) != 1 || rows[0].State != binding.RowRevoked {
			x.Fatalf("%s: rows %+v", what, rows)
		}
	}
	// Only the end is decided and revoked, the run is still in its place.
	id, g := x.boundRunning()
	late := x.tapped(once("InsertRow", func() {
		_, err := x.w.SetEnd(x.ctx, g, cancelled())
		x.must(err)
		r := x.load(id)
		_, err = x.w.Revoke(x.ctx, r, binding.Ending{Epoch: r.Epoch, Generation: r.Generation, Run: r.Run})
		x.must(err)
	}))
	var c counter
	_, err := binding.NewEffects(late.w).Do(x.ctx, g, tool("k"), c.act)
	x.wantFault(err, fault.Cancelled)
	x.wantCount(&c, 0)
}

func effectOwnNonce(x *world) {
	_, g := x.boundRunning()
	var c counter
	var inserts int
	begun, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	late := x.tapped(func(op string) Fate {
		if op != "InsertRow" {
			return Deliver
		}
		if inserts++; inserts > 1 {
			close(release)
			return Deliver
		}
		// Another process inserts its row and is in the middle of its effect, when
		// the reply to this one's insert gets lost.
		go func() {
			_, err := binding.NewEffects(x.w).Do(x.ctx, g, tool("k"), func(ctx context.Context) ([]byte, error) {
				defer func() { <-release }()
				close(begun)
				return c.act(ctx)
			})
			done <- err
		}()
		<-begun
		return LoseReply
	})
	out, err := binding.NewEffects(late.w).Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	x.must(<-done)
	if !out.Replayed || string(out.Body) != "body 1" {
		x.Fatalf("outcome %+v", out)
	}
	x.wantCount(&c, 1)
}

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
