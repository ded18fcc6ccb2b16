package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

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
