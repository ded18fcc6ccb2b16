package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
)

func outcomeInvariants() []Invariant {
	return []Invariant{
		{"T90", "one_lost_answer", "Any single request or reply of a run's whole life may be lost, and nobody notices.", oneLostAnswer},
		{"T91", "many_lost_answers", "With many lost requests and replies no event is lost or doubled, and no effect happens twice.", manyLostAnswers},
		{"T92", "store_away", "While the store does not answer, every write says so and changes nothing that it does not own up to.", storeAway},
		{"T93", "start_lost_reply", "A start whose reply was lost knows its own run from one that the same replica started meanwhile.", startLostReply},
		{"T94", "all_effects_bounded", "A run has no more than 4096 effects in all, and who concludes it reads none of their outcomes.", allEffectsBounded},
		{"T95", "replace_idle", "A lease is replaced for being idle only where no run is active when it is written, and is hibernated until one starts.", replaceIdle},
		{"T96", "resume_carries", "The calls that a resume carries over stand in its run, while it is ending, and in its document.", resumeCarries},
		{"T97", "effect_granted", "An effect that needs a grant is admitted only in the run that carries a decision to make that very call, and once.", effectGranted},
		{"T98", "first_stream", "Of several streams of a run that awaits its first one, one is it, also when the answer is lost; a run that awaits none, or has ended, has none.", firstStream},
	}
}

// wholeLife makes each of the writes once, over a back end that may lose
// answers, and repeats what stays unsettled as a caller does, who has the given
// patience. It checks what is left on the back end itself.
func (x *world) wholeLife(lossy *world, patience int) {
	x.Helper()
	settle := func(what string, do func() error) {
		x.Helper()
		for range patience {
			err := do()
			if err == nil {
				return
			}
			if !fault.Is(err, fault.DependencyUnavailable) {
				x.Fatalf("%s: %v", what, err)
			}
		}
		x.Fatalf("%s: never settled", what)
	}
	id := x.bound()
	settle("replace", func() error { _, err := lossy.w.Replace(x.ctx, id, 1, 1, name(id), "p"); return err })
	p := x.params(id, "k")
	settle("start", func() error {
		s, err := lossy.w.Start(x.ctx, p)
		if err == nil && s.Record.Run == nil {
			err = errors.New("no run")
		}
		return err
	})
	g := x.grant(id)
	var want []string
	for i := range 6 {
		b := batch(uint64(len(want)), fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
		settle("append", func() error { _, err := lossy.w.Append(x.ctx, g, owner, b); return err })
		want = append(want, fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
		if i%2 == 1 {
			settle("archive", func() error { return lossy.w.Archive(x.ctx, id, p.RunID) })
		}
	}
	settle("beat", func() error { return lossy.w.Beat(x.ctx, g, owner) })
	var c counter
	effects := binding.NewEffects(lossy.w)
	for i := range 3 {
		_, err := effects.Do(x.ctx, g, tool(fmt.Sprint(i)), c.act)
		if err != nil && (patience == 1 || !fault.Is(err, fault.DependencyUnavailable) && !fault.Is(err, fault.ToolOutcomeUnknown)) {
			x.Fatalf("effect: %v", err)
		}
		out, err := effects.Do(x.ctx, g, tool(fmt.Sprint(i)), c.act)
		if err == nil && !out.Replayed && c.n.Load() > int32(i)+1 {
			x.Fatalf("effect %d happened again", i)
		}
	}
	if n := c.n.Load(); n > 3 {
		x.Fatalf("three effects happened %d times", n)
	}
	hc := commit(0, 3)
	hc.Interrupt = &binding.Interrupt{ID: "int", Hash: "h"}
	settle("commit", func() error { _, _, err := lossy.w.CommitHead(x.ctx, g, hc); return err })
	settle("set end", func() error {
		e, err := lossy.w.SetEnd(x.ctx, g, cancelled())
		if err == nil && e.Kind != binding.EndInterrupted {
			err = fmt.Errorf("ends as %v", e)
		}
		return err
	})
	r := x.load(id)
	settle("revoke", func() error {
		_, err := lossy.w.Revoke(x.ctx, r, binding.Ending{Epoch: r.Epoch, Generation: r.Generation, Run: r.Run})
		return err
	})
	terminal := batch(uint64(len(want)), "terminal")
	settle("terminate", func() error {
		_, err := lossy.w.Terminate(x.ctx, g, owner, terminal, binding.End{Kind: binding.EndInterrupted})
		return err
	})
	want = append(want, "terminal")
	settle("conclude", func() error { _, err := lossy.w.ConcludeRun(x.ctx, id, p.RunID, closing); return err })
	x.wantLog(id, p.RunID, true, want...)
	settle("drop lease", func() error { return lossy.w.DropLease(x.ctx, id, binding.ClaimName(id, 1)) })

	d := x.decision(id, *x.load(id).Interrupt, "yes")
	settle("resume", func() error { _, err := lossy.w.Resume(x.ctx, d); return err })
	settle("take over", func() error { return lossy.w.TakeOver(x.ctx, id, d.RunID, owner, 0) })
	settle("conclude the resumed", func() error { _, err := lossy.w.ConcludeRun(x.ctx, id, d.RunID, closing); return err })
	x.wantLog(id, d.RunID, true, "closing", "terminal lost none")
	settle("clear", func() error { _, err := lossy.w.Clear(x.ctx, id, 1, 2, name(id), "p"); return err })
	if r := x.load(id); r.Epoch != 2 || r.Generation != 3 || r.Run != nil || r.EndingRun() != nil {
		x.Fatalf("left: %+v", r)
	}
}

var reads = []string{"Load", "LoadRun", "LoadRow", "Rows", "Chunks", "Committed"}

func oneLostAnswer(x *world) { x.lostAnswers(7) }

// lostAnswers loses one answer of a whole life, each step-th in turn.
func (x *world) lostAnswers(step int32) {
	x.Helper()
	for _, fate := range []Fate{LoseRequest, LoseReply} {
		for lose := int32(1); ; lose += step {
			var n atomic.Int32
			lossy := x.tapped(func(op string) Fate {
				if !slices.Contains(reads, op) && n.Add(1) == lose {
					return fate
				}
				return Deliver
			})
			x.wholeLife(lossy, 1)
			if n.Load() < lose {
				break
			}
		}
	}
}

func manyLostAnswers(x *world) {
	for seed := range uint32(4) {
		state := seed*2654435761 + 1
		lossy := x.tapped(func(string) Fate {
			state = state*1664525 + 1013904223 // the same on every machine
			switch state >> 28 {
			case 0, 1:
				return LoseRequest
			case 2, 3:
				return LoseReply
			default:
				return Deliver
			}
		})
		x.wholeLife(lossy, 50)
	}
}

func storeAway(x *world) {
	id, g := x.boundRunning()
	before := x.load(id)
	away := x.tapped(func(string) Fate { return LoseRequest })
	var c counter
	for what, do := range map[string]func() error{
		"start":     func() error { _, err := away.w.Start(x.ctx, x.params(id, "k")); return err },
		"append":    func() error { _, err := away.w.Append(x.ctx, g, owner, batch(0, "a")); return err },
		"end":       func() error { _, err := away.w.SetEnd(x.ctx, g, cancelled()); return err },
		"terminate": func() error { _, err := away.w.Terminate(x.ctx, g, owner, batch(0, "a"), cancelled()); return err },
		"effect":    func() error { _, err := binding.NewEffects(away.w).Do(x.ctx, g, tool("k"), c.act); return err },
		"head":      func() error { _, _, err := away.w.CommitHead(x.ctx, g, commit(0, 0)); return err },
		"replace":   func() error { _, err := away.w.Replace(x.ctx, id, 1, 1, name(id), "p"); return err },
		"clear":     func() error { _, err := away.w.Clear(x.ctx, id, 1, 1, name(id), "p"); return err },
		"conclude":  func() error { _, err := away.w.ConcludeRun(x.ctx, id, g.Envelope().RunID, closing); return err },
		"beat":      func() error { return away.w.Beat(x.ctx, g, owner) },
		"take over": func() error { return away.w.TakeOver(x.ctx, id, g.Envelope().RunID, owner, 0) },
		"read":      func() error { _, err := away.w.Events(x.ctx, id, g.Envelope().RunID, 0, 0); return err },
	} {
		if err := do(); !fault.Is(err, fault.DependencyUnavailable) {
			x.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	_, err := away.w.Append(ctx, g, owner, batch(0, "a"))
	x.wantFault(err, fault.Cancelled)
	x.wantCount(&c, 0)
	if r := x.load(id); r.Revision != before.Revision || r.Run.EventHead != 0 || !r.Run.End.Open() {
		x.Fatalf("record %+v", r)
	}
}
