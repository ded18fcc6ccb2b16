package bindingtest

import (
	"fmt"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
)

func startInvariants() []Invariant {
	return []Invariant{
		{"T17", "start_sets_run", "A start sets the run, raises the revision, and leaves epoch, generation and head alone.", startSetsRun},
		{"T18", "start_again_is_the_same_run", "The same start again finds its run, active, ending or ended, and starts nothing.", startAgain},
		{"T19", "start_other_content", "Another content under the same key is a conflict, at every point of the run's life.", startOtherContent},
		{"T20", "start_one_at_a_time", "No run starts while another is active or not yet concluded.", startOneAtATime},
		{"T21", "start_never_again", "A start that was slow does not start a run again that has ended meanwhile.", startNeverAgain},
		{"T22", "start_other_epoch", "A run whose id was computed for another epoch is not started.", startOtherEpoch},
		{"T23", "start_interrupt", "A start that asks for no pending interrupt is refused where one is pending.", startInterrupt},
		{"T24", "start_race", "Of many starts at once, of several keys, one run starts, and one caller drives it.", startRace},
	}
}

func startSetsRun(x *world) {
	id := x.bound()
	before := x.load(id)
	p := x.params(id, "k")
	s, err := x.w.Start(x.ctx, p)
	x.must(err)
	r := x.load(id)
	if s.Outcome != binding.StartedNow || r.Run == nil || r.Run.ID != p.RunID || r.Run.Owner != owner || !r.Run.Deadline.Equal(p.Deadline) {
		x.Fatalf("started %+v, record %+v", s, r)
	}
	if r.Revision != before.Revision+1 || r.Epoch != 1 || r.Generation != 1 || r.Head != before.Head || s.Record.Revision != r.Revision {
		x.Fatalf("record %+v", r)
	}
	_, err = x.w.Start(x.ctx, binding.StartParams{BindingID: "hs_unknown", RunID: "r", Epoch: 1, Deadline: p.Deadline, Owner: owner})
	x.wantFault(err, fault.NotFound)
}

// life takes one run through all the places where a start can find it.
func (x *world) life(at func(where string, p binding.StartParams)) {
	x.Helper()
	id := x.bound()
	p := x.params(id, "k")
	g := x.running(id, "k")
	at("run", p)
	x.finish(g, cancelled())
	at("ending", p)
	x.conclude(id, p.RunID)
	at("ended", p)
}

func startAgain(x *world) {
	x.life(func(where string, p binding.StartParams) {
		x.Helper()
		before := x.load(p.BindingID)
		s, err := x.w.Start(x.ctx, p)
		x.must(err)
		switch {
		case where == "ended":
			if s.Outcome != binding.Finished || s.Document == nil || s.Document.RunID != p.RunID || s.Document.End != cancelled() {
				x.Fatalf("%s: %+v", where, s)
			}
		case s.Outcome != binding.StartedBefore:
			x.Fatalf("%s: %+v", where, s)
		}
		if after := x.load(p.BindingID); after.Revision != before.Revision {
			x.Fatalf("%s: the record changed to %+v", where, after)
		}
	})
}

func startOtherContent(x *world) {
	x.life(func(_ string, p binding.StartParams) {
		x.Helper()
		p.ContentDigest = "other"
		_, err := x.w.Start(x.ctx, p)
		x.wantFault(err, fault.IdempotencyConflict)
	})
}

func startOneAtATime(x *world) {
	x.life(func(where string, p binding.StartParams) {
		x.Helper()
		s, err := x.w.Start(x.ctx, x.params(p.BindingID, "other"))
		if where == "ended" {
			x.must(err)
			if s.Outcome != binding.StartedNow {
				x.Fatalf("%+v", s)
			}
			return
		}
		x.wantFault(err, fault.AlreadyRunning)
	})
}

func startNeverAgain(x *world) {
	id := x.bound()
	p := x.params(id, "k")
	// Between its reads and its write, the same run starts, ends and is concluded.
	slow := x.tapped(once("Update", func() {
		x.finish(x.running(id, "k"), cancelled())
		x.conclude(id, p.RunID)
	}))
	s, err := slow.w.Start(x.ctx, p)
	x.must(err)
	if s.Outcome != binding.Finished || x.load(id).Run != nil {
		x.Fatalf("a finished run was started again: %+v", s)
	}

	// It reads the run in ending, and the run is concluded before it goes on: that
	// leaves the revision as it was read.
	p = x.params(id, "k2")
	x.finish(x.running(id, "k2"), cancelled())
	slow = x.tapped(once("Update", func() { x.conclude(id, p.RunID) }))
	s, err = slow.w.Start(x.ctx, p)
	x.must(err)
	if s.Outcome == binding.StartedNow || x.load(id).Run != nil {
		x.Fatalf("a finished run was started again: %+v", s)
	}
}

func startOtherEpoch(x *world) {
	id := x.bound()
	p := x.params(id, "k")
	x.clear(id)
	_, err := x.w.Start(x.ctx, p)
	x.wantStale(err)

	// Also when the clear comes between its reads and its write.
	p = x.params(id, "k")
	_, err = x.tapped(once("Update", func() { x.clear(id) })).w.Start(x.ctx, p)
	x.wantStale(err)
	if r := x.load(id); r.Run != nil {
		x.Fatalf("started %+v", r.Run)
	}
}

func startInterrupt(x *world) {
	id, _ := x.interrupted()
	p := x.params(id, "second")
	p.NoInterrupt = true
	_, err := x.w.Start(x.ctx, p)
	x.wantFault(err, fault.InterruptConflict)
	if r := x.load(id); r.Interrupt == nil || r.Run != nil {
		x.Fatalf("record %+v", r)
	}
	p.NoInterrupt = false
	_, err = x.w.Start(x.ctx, p)
	x.must(err)
	if r := x.load(id); r.Interrupt == nil {
		x.Fatal("a start took the interrupt away")
	}
}

func startRace(x *world) {
	id := x.bound()
	var n tally
	race(16, func(i int) {
		p := x.params(id, fmt.Sprint(i%4))
		p.Owner = fmt.Sprint(i % 2)
		s, err := x.w.Start(x.ctx, p)
		switch {
		case fault.Is(err, fault.AlreadyRunning):
		case err != nil:
			x.Errorf("start: %v", err)
		case s.Outcome == binding.StartedNow:
			n.add("now")
		default:
			if r := x.load(id); s.Outcome != binding.StartedBefore || r.Run.ID != p.RunID {
				x.Errorf("start of %s: %+v", p.RunID, s)
			}
		}
	})
	if n.of("now") != 1 || x.load(id).Revision != 2 {
		x.Fatalf("%v start at revision %d", n.n, x.load(id).Revision)
	}
}

func startLostReply(x *world) {
	id := x.bound()
	p := x.params(id, "k")
	lose := func(fate Fate, first func()) *world {
		done := false
		return x.tapped(func(op string) Fate {
			if op != "Update" || done {
				return Deliver
			}
			done = true
			first()
			return fate
		})
	}
	// Another request of the same replica starts the run; this one's is lost.
	other := lose(LoseRequest, func() {
		s, err := x.w.Start(x.ctx, p)
		x.must(err)
		if s.Outcome != binding.StartedNow {
			x.Fatalf("%+v", s)
		}
	})
	s, err := other.w.Start(x.ctx, p)
	x.must(err)
	if s.Outcome != binding.StartedBefore {
		x.Fatalf("two callers drive one run: %+v", s)
	}
	id = x.bound()
	s, err = lose(LoseReply, func() {}).w.Start(x.ctx, x.params(id, "k"))
	x.must(err)
	if s.Outcome != binding.StartedNow || x.load(id).Revision != 2 {
		x.Fatalf("nobody drives the run: %+v", s)
	}
}
