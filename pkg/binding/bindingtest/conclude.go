package bindingtest

import (
	"context"
	"fmt"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func concludeInvariants() []Invariant {
	return []Invariant{
		{"T75", "conclude_by_any", "However many replicas conclude a run at once, it gets one terminal, one document and a whole log.", concludeByAny},
		{"T76", "conclude_from_anywhere", "A replica that stops after any step of a conclusion leaves what another one can finish.", concludeFromAnywhere},
		{"T77", "conclude_order", "A run leaves the record only after its terminal, its chunks and its document.", concludeOrder},
		{"T78", "side_effects", "A terminal that says none stays true; possible and known are told apart.", sideEffects},
		{"T79", "revoke_after_end", "Effects are revoked only when none can be admitted any more.", revokeAfterEnd},
		{"T80", "claim_holds_nobody_up", "A claim that still waits to be deleted keeps no run from starting.", claimHoldsNobodyUp},
		{"T81", "put_terminal_place", "Closing events are written where the log ends, or not at all.", putTerminalPlace},
	}
}

func concludeByAny(x *world) {
	for range 3 {
		id, g := x.boundRunning()
		run := g.Envelope().RunID
		x.append(g, "a")
		x.append(g, "b")
		x.admitOnly(g, "k")
		x.replace(id)
		docs := make([]binding.RunDocument, 6)
		race(6, func(i int) {
			d, err := x.w.ConcludeRun(x.ctx, id, run, func(r binding.Run, effects string) (binding.Batch, error) {
				return batch(r.EventHead, "closing", fmt.Sprintf("terminal by %d %s", i, effects)), nil
			})
			if err != nil {
				x.Errorf("conclude: %v", err)
			}
			docs[i] = d
		})
		texts, ended := x.texts(id, run)
		if len(texts) != 4 || !ended || texts[2] != "closing" || x.load(id).EndingRun() != nil {
			x.Fatalf("log %q, ended %v, ending %+v", texts, ended, x.load(id).EndingRun())
		}
		for _, d := range docs {
			if string(d.Terminal) != string(event(texts[3])) || d.End.Kind != binding.EndLost || d.Events != 4 || d.SideEffects != binding.SideEffectsNone || d.Generation != 1 || !d.EndedAt.Equal(docs[0].EndedAt) {
				x.Fatalf("document %+v", d)
			}
		}
	}
}

func concludeFromAnywhere(x *world) {
	for stop := 1; ; stop++ {
		id, g := x.boundRunning()
		run := g.Envelope().RunID
		x.append(g, "a")
		x.admitOnly(g, "k")
		x.replace(id)
		ctx, cancel := context.WithCancel(x.ctx)
		n := 0
		dying := x.tapped(func(op string) Fate {
			if op == "Load" || op == "LoadRun" || op == "Rows" || op == "Chunks" {
				return Deliver
			}
			if n++; n == stop { // its last write: applied, and nothing after it
				cancel()
				return LoseRequest
			}
			return Deliver
		})
		_, err := dying.w.ConcludeRun(ctx, id, run, closing)
		cancel()
		d := x.conclude(id, run)
		x.wantLog(id, run, true, "a", "closing", "terminal lost none")
		if d.Events != 3 || string(d.Terminal) != string(event("terminal lost none")) {
			x.Fatalf("after %d writes: %+v", stop, d)
		}
		if err == nil {
			if stop < 6 {
				x.Fatalf("a conclusion of %d writes", stop)
			}
			return
		}
	}
}

func concludeOrder(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	x.append(g, "a")
	drop := func(where string) {
		x.Helper()
		if err := x.w.DropRun(x.ctx, id, run); !fault.Is(err, fault.Internal) {
			x.Fatalf("%s: %v", where, err)
		}
	}
	drop("active")
	x.replace(id)
	drop("no terminal")
	x.must(x.w.PutTerminal(x.ctx, id, run, batch(1, "t")))
	drop("no chunks")
	x.must(x.w.Archive(x.ctx, id, run))
	drop("no document")
	e := x.load(id).EndingRun()
	d := binding.RunDocument{RunID: run, BindingID: id, Epoch: 1, Generation: 1, End: e.Run.End, Events: 2, SideEffects: "none", Terminal: event("t")}
	for _, bad := range []func(*binding.RunDocument){
		func(d *binding.RunDocument) { d.End = binding.End{} },
		func(d *binding.RunDocument) { d.Terminal = nil },
		func(d *binding.RunDocument) { d.RunID = "" },
	} {
		o := d
		bad(&o)
		x.wantFault(x.w.PutRun(x.ctx, o), fault.Internal)
	}
	x.must(x.w.PutRun(x.ctx, d))
	for range 2 {
		x.must(x.w.DropRun(x.ctx, id, run))
	}
	x.wantLog(id, run, true, "a", "t")
	// A document alone is not enough while the tail still has events.
	id, g = x.boundRunning()
	run = g.Envelope().RunID
	x.append(g, "a")
	x.replace(id)
	d.RunID, d.BindingID = run, id
	x.must(x.w.PutRun(x.ctx, d))
	x.must(x.w.Archive(x.ctx, id, run))
	drop("document and chunks, but no terminal")
	x.must(x.w.PutTerminal(x.ctx, id, run, batch(1, "t")))
	drop("document and terminal, but no chunks")
}

func sideEffects(x *world) {
	for want, act := range map[string]func(g fence.Grant){
		binding.SideEffectsNone: func(g fence.Grant) {
			x.admitOnly(g, "k")
			_, err := binding.NewEffects(x.w).Do(x.ctx, g, tool("k2"), func(context.Context) ([]byte, error) { return nil, &binding.NotBegun{} })
			x.wantFault(err, fault.DependencyUnavailable)
		},
		binding.SideEffectsKnown: func(g fence.Grant) {
			var c counter
			_, err := binding.NewEffects(x.w).Do(x.ctx, g, tool("k"), c.act)
			x.must(err)
			x.admitOnly(g, "k2")
		},
		binding.SideEffectsPossible: func(g fence.Grant) {
			var c counter
			_, err := binding.NewEffects(x.w).Do(x.ctx, g, tool("k"), c.act)
			x.must(err)
			x.leaveDispatched(g, tool("k2"))
		},
	} {
		id, g := x.boundRunning()
		act(g)
		x.replace(id)
		told := ""
		d, err := x.w.ConcludeRun(x.ctx, id, g.Envelope().RunID, func(run binding.Run, effects string) (binding.Batch, error) {
			told = effects
			return closing(run, effects)
		})
		x.must(err)
		if told != want || d.SideEffects != want {
			x.Fatalf("terminal says %q, document %q, want %q", told, d.SideEffects, want)
		}
	}
}

func revokeAfterEnd(x *world) {
	id, g := x.boundRunning()
	x.admitOnly(g, "k")
	r := x.load(id)
	_, err := x.w.Revoke(x.ctx, r, binding.Ending{Epoch: r.Epoch, Generation: r.Generation, Run: r.Run})
	x.wantIs(err, binding.ErrEndOpen)
	var c counter
	_, err = binding.NewEffects(x.w).Do(x.ctx, g, tool("k"), c.act)
	x.must(err)
	x.wantCount(&c, 1)
	s, err := x.w.Revoke(x.ctx, r, binding.Ending{Lease: r.Lease})
	if err != nil || s != binding.SideEffectsNone {
		x.Fatalf("%q, %v", s, err)
	}
}

func claimHoldsNobodyUp(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	x.replace(id)
	x.conclude(id, g.Envelope().RunID)
	if r := x.load(id); len(r.Ending) != 1 || r.Ending[0].Lease == nil {
		x.Fatalf("ending %+v", r.Ending)
	}
	x.running(id, "second")
	x.must(x.w.DropLease(x.ctx, id, binding.ClaimName(id, 1)))
	if r := x.load(id); len(r.Ending) != 0 || r.Run == nil || r.Lease == nil {
		x.Fatalf("record %+v", r)
	}
	// The lease in service is not dropped by its name.
	x.must(x.w.DropLease(x.ctx, id, binding.ClaimName(id, 2)))
	if r := x.load(id); r.Lease == nil {
		x.Fatal("the lease in service is gone")
	}
}

func putTerminalPlace(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	x.append(g, "a")
	x.wantStale(x.w.PutTerminal(x.ctx, id, run, batch(1, "t"))) // not ending
	x.replace(id)
	x.wantStale(x.w.PutTerminal(x.ctx, id, run, batch(0, "t")))
	x.wantStale(x.w.PutTerminal(x.ctx, id, run, batch(2, "t")))
	x.wantStale(x.w.PutTerminal(x.ctx, id, "run_unknown", batch(0, "t")))
	_, err := x.w.ConcludeRun(x.ctx, id, "run_unknown", closing)
	x.wantFault(err, fault.NotFound)
	x.conclude(id, run)
	x.must(x.w.PutTerminal(x.ctx, id, run, batch(1, "t"))) // concluded: nothing to do
	other, _ := x.boundRunning()
	_, err = x.w.ConcludeRun(x.ctx, other, run, closing) // another binding's run
	x.wantFault(err, fault.NotFound)
	_, err = x.w.Events(x.ctx, other, run, 0, 0)
	x.wantFault(err, fault.NotFound)
	x.wantLog(id, run, true, "a", "closing", "terminal lost none")
}
