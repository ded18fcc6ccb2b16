package bindingtest

import (
	"fmt"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func resumeInvariants() []Invariant {
	return []Invariant{
		{"T82", "resume_once", "Of several decisions on one interrupt one wins, and its run starts once.", resumeOnce},
		{"T83", "resume_again", "The same decision again is answered with its run, another one is a conflict, at every point of that run's life.", resumeAgain},
		{"T84", "resume_of_what_is_pending", "Only the interrupt that is pending, of that revision and epoch, is resumed.", resumePending},
		{"T85", "resume_needs_room", "A resume waits for the same as a start: no run active, none to be concluded.", resumeNeedsRoom},
		{"T86", "expire", "An interrupt expires or is resumed, not both.", expire},
	}
}

func (x *world) decision(id string, i binding.Interrupt, hash string) binding.ResumeParams {
	x.Helper()
	r := x.load(id)
	return binding.ResumeParams{
		StartParams: binding.StartParams{
			BindingID: id, RunID: binding.ResumeRunID(id, r.Epoch, i.ID, i.Revision), RequestID: "req", KeyDigest: "k",
			Epoch: r.Epoch, Deadline: time.Now().Add(time.Hour), Owner: owner,
		},
		InterruptID: i.ID, Revision: i.Revision, AskedBy: i.RunID, InterruptHash: i.Hash, DecisionHash: hash,
	}
}

func resumeOnce(x *world) {
	id, i := x.interrupted()
	var n tally
	race(12, func(k int) {
		p := x.decision(id, i, fmt.Sprint(k%3))
		s, err := x.w.Resume(x.ctx, p)
		switch {
		case fault.Is(err, fault.InterruptConflict):
			n.add("conflict")
		case err != nil:
			x.Errorf("resume: %v", err)
		case s.Outcome == binding.StartedNow:
			n.add("now")
			n.add("won " + p.DecisionHash)
		default:
			n.add("won " + p.DecisionHash)
		}
	})
	r := x.load(id)
	if n.of("now") != 1 || n.of("conflict") != 8 || r.Interrupt != nil || r.Resumed == nil || n.of("won "+r.Resumed.DecisionHash) != 4 || r.Run == nil {
		x.Fatalf("%v, record %+v", n.n, r)
	}
}

func resumeAgain(x *world) {
	id, i := x.interrupted()
	p := x.decision(id, i, "yes")
	s, err := x.w.Resume(x.ctx, p)
	x.must(err)
	if s.Outcome != binding.StartedNow || s.Record.Run.ID != p.RunID {
		x.Fatalf("%+v", s)
	}
	again := func(where string, want binding.StartOutcome) {
		x.Helper()
		s, err := x.w.Resume(x.ctx, p)
		if err != nil || s.Outcome != want {
			x.Fatalf("%s: %+v, %v", where, s, err)
		}
		if _, err := x.w.Resume(x.ctx, x.decision(id, i, "no")); !fault.Is(err, fault.InterruptConflict) {
			x.Fatalf("%s: another decision: %v", where, err)
		}
	}
	g := x.grant(id)
	again("run", binding.StartedBefore)
	x.append(g, "a")
	c := commit(1, 0)
	c.Interrupt = &binding.Interrupt{ID: i.ID, Hash: "hash"} // a harness that uses its ids again
	_, end, err := x.w.CommitHead(x.ctx, g, c)
	x.must(err)
	x.terminate(g, end)
	again("ending", binding.StartedBefore)
	x.conclude(id, p.RunID)
	again("ended", binding.Finished)
	// A later interrupt and its resume do not make it forget.
	i2 := *x.load(id).Interrupt
	if i2.Revision == i.Revision {
		x.Fatalf("revision %d again", i2.Revision)
	}
	p2 := x.decision(id, i2, "yes")
	s, err = x.w.Resume(x.ctx, p2)
	x.must(err)
	if s.Outcome != binding.StartedNow || p2.RunID == p.RunID {
		x.Fatalf("%+v", s)
	}
	again("after another resume", binding.Finished)
}

func resumePending(x *world) {
	id, i := x.interrupted()
	other := i
	other.ID = "int_other"
	_, err := x.w.Resume(x.ctx, x.decision(id, other, "yes"))
	x.wantFault(err, fault.InterruptNotFound)
	for name, change := range map[string]func(*binding.Interrupt){
		"no revision":     func(i *binding.Interrupt) { i.Revision = 0 },
		"a later one":     func(i *binding.Interrupt) { i.Revision++ },
		"another run's":   func(i *binding.Interrupt) { i.RunID = "run_other" },
		"other questions": func(i *binding.Interrupt) { i.Hash = "other" },
	} {
		other := i
		change(&other)
		if _, err = x.w.Resume(x.ctx, x.decision(id, other, "yes")); !fault.Is(err, fault.InterruptConflict) {
			x.Errorf("%s: %v", name, err)
		}
	}
	p := x.decision(id, i, "yes")
	x.clear(id)
	x.concludeAll(id)
	_, err = x.w.Resume(x.ctx, p) // decided in the old epoch
	x.wantStale(err)
	_, err = x.w.Resume(x.ctx, x.decision(id, i, "yes"))
	x.wantFault(err, fault.InterruptNotFound)
	if r := x.load(id); r.Run != nil || r.Resumed != nil {
		x.Fatalf("record %+v", r)
	}
}

func resumeNeedsRoom(x *world) {
	id, i := x.interrupted()
	g := x.running(id, "second")
	p := x.decision(id, i, "yes")
	_, err := x.w.Resume(x.ctx, p)
	x.wantFault(err, fault.AlreadyRunning)
	x.finish(g, cancelled())
	_, err = x.w.Resume(x.ctx, p)
	x.wantFault(err, fault.AlreadyRunning)
	x.conclude(id, g.Envelope().RunID)
	_, err = x.w.Resume(x.ctx, p) // the other run moved no head: it is pending still
	x.must(err)
	_, err = x.w.Start(x.ctx, x.params(id, "third"))
	x.wantFault(err, fault.AlreadyRunning)
}

func expire(x *world) {
	id, i := x.interrupted()
	x.wantFault(x.w.ExpireInterrupt(x.ctx, id, i.ID, i.Revision+1), fault.InterruptConflict)
	for range 2 {
		x.must(x.w.ExpireInterrupt(x.ctx, id, i.ID, i.Revision))
	}
	_, err := x.w.Resume(x.ctx, x.decision(id, i, "yes"))
	x.wantFault(err, fault.InterruptNotFound)

	for range 4 {
		id, i := x.interrupted()
		var n tally
		race(2, func(k int) {
			var err error
			if k == 0 {
				err = x.w.ExpireInterrupt(x.ctx, id, i.ID, i.Revision)
			} else {
				_, err = x.w.Resume(x.ctx, x.decision(id, i, "yes"))
			}
			switch {
			case err == nil:
				n.add("won")
			case !fault.Is(err, fault.InterruptConflict) && !fault.Is(err, fault.InterruptNotFound):
				x.Errorf("%v", err)
			}
		})
		if r := x.load(id); n.of("won") != 1 || r.Interrupt != nil {
			x.Fatalf("%v, record %+v", n.n, r)
		}
	}
}

func resumeCarries(x *world) {
	id, i := x.interrupted()
	p := x.decision(id, i, "yes")
	p.Carried = []binding.Carried{{ToolCallID: "call_1", Decision: "approve"}, {ToolCallID: "call_2"}}
	s, err := x.w.Resume(x.ctx, p)
	x.must(err)
	carries := func(where string, got []binding.Carried) {
		x.Helper()
		if !slices.Equal(got, p.Carried) {
			x.Fatalf("%s: carries %+v", where, got)
		}
	}
	carries("run", s.Record.Run.Carried)
	carries("run as it stands", x.load(id).Run.Carried)
	x.finish(x.grant(id), binding.End{Kind: binding.EndError, Reason: "model_failed"})
	carries("ending", x.load(id).EndingRun().Run.Carried)
	carries("document", x.conclude(id, p.RunID).Carried)
	d, err := x.b.LoadRun(x.ctx, p.RunID)
	x.must(err)
	if d.AskedBy != i.RunID {
		x.Errorf("asked by %q", d.AskedBy)
	}
	carries("document as it stands", d.Carried)
	p = x.decision(id, binding.Interrupt{ID: "int_2", Revision: 1, RunID: "run_x", Hash: "h"}, "yes")
	p.Carried = make([]binding.Carried, binding.MaxAdmitted+1)
	_, err = x.w.Resume(x.ctx, p)
	x.wantFault(err, fault.Internal)
}

func effectGranted(x *world) {
	args := func(tool, text string) string { return binding.ToolCallDigest(tool, []byte(text)) }
	id, i := x.interrupted()
	p := x.decision(id, i, "yes")
	p.Carried = []binding.Carried{
		{ToolCallID: "approved", Decision: "approve", ArgsDigest: args("a.b", "{}")},
		{ToolCallID: "edited", Decision: "edit", ArgsDigest: args("a.b", `{"x":1}`)},
		{ToolCallID: "rejected", Decision: "reject", ArgsDigest: args("a.b", "{}")},
		{ToolCallID: "delegating", ArgsDigest: args("a.b", "{}")},
		{ToolCallID: "undigested", Decision: "approve"},
	}
	_, err := x.w.Resume(x.ctx, p)
	x.must(err)
	g := x.grant(id)
	var c counter
	e := binding.NewEffects(x.w)
	do := func(g fence.Grant, key, digest string) error {
		_, err := e.Do(x.ctx, g, binding.Effect{Key: key, Kind: "tool", ArgsDigest: digest, NeedsGrant: true}, c.act)
		return err
	}
	for name, call := range map[string][2]string{
		"other arguments": {"approved", args("a.b", `{"x":2}`)},
		"another tool":    {"approved", args("a.c", "{}")},
		"another call":    {"approved-2", args("a.b", "{}")},
		"as it was asked": {"edited", args("a.b", "{}")},
		"rejected":        {"rejected", args("a.b", "{}")},
		"not asked about": {"delegating", args("a.b", "{}")},
		"no digest":       {"undigested", args("a.b", "{}")},
		"nobody's":        {"x", args("a.b", "{}")},
	} {
		if err := do(g, call[0], call[1]); !fault.Is(err, fault.ApprovalRequired) {
			x.Errorf("%s: %v", name, err)
		}
	}
	x.wantCount(&c, 0)
	if r := x.load(id); r.Run.Admissions != 0 {
		x.Errorf("a refused call was admitted: %+v", r.Run)
	}
	x.must(do(g, "approved", args("a.b", "{}")))
	x.must(do(g, "edited", args("a.b", `{"x":1}`)))
	x.wantCount(&c, 2)
	x.must(do(g, "approved", args("a.b", "{}"))) // from the ledger
	x.wantCount(&c, 2)
	x.finish(g, binding.End{Kind: binding.EndError, Reason: "model_failed"})
	x.conclude(id, p.RunID)
	x.must(startNext(x, id))
	x.wantFault(do(x.grant(id), "approved", args("a.b", "{}")), fault.ApprovalRequired) // the grant was that run's
	x.wantCount(&c, 2)
}

func startNext(x *world, id string) error {
	x.Helper()
	_, err := x.w.Start(x.ctx, x.params(id, "next"))
	return err
}
