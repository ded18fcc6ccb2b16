package bindingtest

import (
	"crypto/rand"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func headInvariants() []Invariant {
	return []Invariant{
		{"T60", "head_moves_with_the_end", "Head, pending interrupt and the run's end are one write.", headMoves},
		{"T61", "head_waits_for_log", "A head never covers an event that the log lacks.", headWaits},
		{"T62", "head_revision", "A head moves from the revision that was loaded, and one of several commits wins.", headRevision},
		{"T63", "head_again", "The same commit again answers as the first time, wherever the run is by now; another one under its digest is a conflict.", headAgain},
		{"T64", "head_replaced", "No head of another generation, epoch or run is committed.", headReplaced},
		{"T65", "head_under_cancel", "Under a decided cancel the head moves, no interrupt is set, and the run ends as cancelled.", headUnderCancel},
		{"T66", "head_after_error", "After any other end no head is committed.", headAfterError},
		{"T67", "cancel_or_finish", "A cancel and a finish that race have one end, and both are told which.", cancelOrFinish},
	}
}

func commit(revision, last uint64) binding.HeadCommit {
	return binding.HeadCommit{
		ExpectedRevision: revision, Codec: "native", CodecVersion: 1, SnapshotRef: "snap-" + fmt.Sprint(revision+1), SHA256: "00",
		IdempotencyDigest: rand.Text(), LastSequence: last,
	}
}

// succeed ends a run with a head, concluded.
func (x *world) succeed(g fence.Grant) binding.RunDocument {
	x.Helper()
	id := g.Envelope().BindingID
	head := x.append(g, "text")
	_, end, err := x.w.CommitHead(x.ctx, g, commit(x.load(id).Head.Revision, head-1))
	x.must(err)
	x.terminate(g, end)
	return x.conclude(id, g.Envelope().RunID)
}

// interrupted is a binding whose only run has ended with a pending interrupt.
func (x *world) interrupted() (id string, i binding.Interrupt) {
	x.Helper()
	id, g := x.boundRunning()
	x.append(g, "interrupt.requested")
	c := commit(0, 0)
	c.Interrupt = &binding.Interrupt{ID: "int_1", Hash: "hash"}
	_, end, err := x.w.CommitHead(x.ctx, g, c)
	x.must(err)
	x.terminate(g, end)
	x.conclude(id, g.Envelope().RunID)
	return id, *x.load(id).Interrupt
}

func headMoves(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	before := x.load(id)
	c := commit(0, 0)
	head, end, err := x.w.CommitHead(x.ctx, g, c)
	x.must(err)
	r := x.load(id)
	want := binding.Head{Revision: 1, Codec: "native", CodecVersion: 1, SnapshotRef: "snap-1", SHA256: "00", RunID: r.Run.ID, IdempotencyDigest: c.IdempotencyDigest}
	if head != want || r.Head != want || end.Kind != binding.EndSuccess || r.Run.End != end || r.Interrupt != nil || r.Revision != before.Revision {
		x.Fatalf("head %+v, end %v, record %+v", head, end, r)
	}
	x.terminate(g, end)
	if d := x.conclude(id, r.Run.ID); d.HeadRevision != 1 || d.End != end {
		x.Fatalf("document %+v", d)
	}
	id, i := x.interrupted()
	if r := x.load(id); i.Revision != 1 || i.RunID != r.Head.RunID || i.Hash != "hash" {
		x.Fatalf("interrupt %+v", i)
	}
	// A later run that succeeds leaves no interrupt that its head knows nothing of.
	x.succeed(x.running(id, "second"))
	if r := x.load(id); r.Interrupt != nil || r.Head.Revision != 2 {
		x.Fatalf("record %+v", r)
	}
}

func headWaits(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	var tries int
	slow := x.tapped(func(op string) Fate {
		if op == "Update" {
			if tries++; tries <= 3 {
				if h := x.load(id).Head.Revision; h != 0 {
					x.Errorf("the head moved with %d events", x.load(id).Run.EventHead)
				}
				if tries > 1 {
					x.append(g, "more")
				}
			}
		}
		return Deliver
	})
	_, end, err := slow.w.CommitHead(x.ctx, g, commit(0, 2))
	x.must(err)
	if r := x.load(id); end.Kind != binding.EndSuccess || r.Run.EventHead != 3 {
		x.Fatalf("end %v, record %+v", end, r)
	}
	// It stops to wait when the run is replaced meanwhile.
	id, g = x.boundRunning()
	x.append(g, "a")
	var n int
	slow = x.tapped(func(op string) Fate {
		if op == "Update" {
			if n++; n == 2 {
				x.replace(id)
			}
		}
		return Deliver
	})
	_, _, err = slow.w.CommitHead(x.ctx, g, commit(0, 100))
	x.wantStale(err)
}

func headRevision(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	for _, revision := range []uint64{1, 7} {
		_, _, err := x.w.CommitHead(x.ctx, g, commit(revision, 0))
		x.wantFault(err, fault.RevisionConflict)
	}
	var n tally
	race(8, func(i int) {
		c := commit(0, 0)
		c.SnapshotRef = fmt.Sprint(i)
		head, _, err := x.w.CommitHead(x.ctx, g, c)
		switch {
		case err == nil:
			n.add("won")
			n.add(head.SnapshotRef)
		case !fault.Is(err, fault.RevisionConflict) && !fault.Is(err, fault.StaleLease):
			x.Errorf("commit: %v", err)
		}
	})
	if r := x.load(id); n.of("won") != 1 || n.of(r.Head.SnapshotRef) != 1 || r.Head.Revision != 1 {
		x.Fatalf("%v, head %+v", n.n, r.Head)
	}
}

func headAgain(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	c := commit(0, 0)
	c.Interrupt = &binding.Interrupt{ID: "int_1", Hash: "hash"}
	want, _, err := x.w.CommitHead(x.ctx, g, c)
	x.must(err)
	again := func(where string) {
		x.Helper()
		head, end, err := x.w.CommitHead(x.ctx, g, c)
		if err != nil || head != want || end.Kind != binding.EndInterrupted {
			x.Fatalf("%s: %+v, %v, %v", where, head, end, err)
		}
		for what, change := range map[string]func(*binding.HeadCommit){
			"snapshot":     func(c *binding.HeadCommit) { c.SnapshotRef = "other" },
			"content":      func(c *binding.HeadCommit) { c.SHA256 = "other" },
			"codec":        func(c *binding.HeadCommit) { c.CodecVersion++ },
			"revision":     func(c *binding.HeadCommit) { c.ExpectedRevision++ },
			"no interrupt": func(c *binding.HeadCommit) { c.Interrupt = nil },
			"interrupt":    func(c *binding.HeadCommit) { c.Interrupt = &binding.Interrupt{ID: "int_1", Hash: "other"} },
		} {
			o := c
			change(&o)
			if _, _, err := x.w.CommitHead(x.ctx, g, o); !fault.Is(err, fault.IdempotencyConflict) {
				x.Fatalf("%s, other %s: %v", where, what, err)
			}
		}
	}
	again("running")
	x.terminate(g, binding.End{Kind: binding.EndInterrupted})
	again("ending")
	x.conclude(id, g.Envelope().RunID)
	again("ended")
	if r := x.load(id); r.Head != want {
		x.Fatalf("head %+v", r.Head)
	}
}

func headReplaced(x *world) {
	x.replacements(func(what, id string, g fence.Grant) {
		x.Helper()
		if r := x.load(id); r.Run != nil { // the log is not what keeps the head back
			x.append(x.grant(id), "a")
		}
		if _, _, err := x.w.CommitHead(x.ctx, g, commit(0, 0)); !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: %v", what, err)
		}
		if r := x.load(id); r.Head.Revision != 0 {
			x.Fatalf("%s: head %+v", what, r.Head)
		}
	})
	// Committed and then cleared: the old epoch's head is not told any more.
	id, g := x.boundRunning()
	x.append(g, "a")
	c := commit(0, 0)
	_, _, err := x.w.CommitHead(x.ctx, g, c)
	x.must(err)
	x.clear(id)
	_, _, err = x.w.CommitHead(x.ctx, g, c)
	x.wantStale(err)
}

func headUnderCancel(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	_, err := x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	c := commit(0, 0)
	c.Interrupt = &binding.Interrupt{ID: "int_1", Hash: "hash"}
	for range 2 {
		head, end, err := x.w.CommitHead(x.ctx, g, c)
		x.must(err)
		if head.Revision != 1 || end != cancelled() {
			x.Fatalf("head %+v, end %v", head, end)
		}
	}
	if r := x.load(id); r.Interrupt != nil || r.Head.Revision != 1 || r.Run.End != cancelled() {
		x.Fatalf("record %+v", r)
	}
	x.terminate(g, cancelled())
}

func headAfterError(x *world) {
	for _, e := range []binding.End{{Kind: binding.EndLost}, {Kind: binding.EndError, Reason: string(fault.ModelFailed)}} {
		id, g := x.boundRunning()
		x.append(g, "a")
		_, err := x.w.SetEnd(x.ctx, g, e)
		x.must(err)
		_, _, err = x.w.CommitHead(x.ctx, g, commit(0, 0))
		x.wantStale(err)
		if r := x.load(id); r.Head.Revision != 0 {
			x.Fatalf("head %+v", r.Head)
		}
	}
	id, g := x.boundRunning()
	x.append(g, "a")
	_, _, err := x.w.CommitHead(x.ctx, g, commit(0, 0))
	x.must(err)
	_, _, err = x.w.CommitHead(x.ctx, g, commit(1, 0)) // the run has finished
	x.wantStale(err)
	if r := x.load(id); r.Head.Revision != 1 {
		x.Fatalf("head %+v", r.Head)
	}
}

func cancelOrFinish(x *world) {
	for range 5 {
		id, g := x.boundRunning()
		x.append(g, "a")
		ends := make([]binding.End, 4)
		race(4, func(i int) {
			var err error
			if i%2 == 0 {
				ends[i], err = x.w.SetEnd(x.ctx, g, cancelled())
			} else {
				_, ends[i], err = x.w.CommitHead(x.ctx, g, commit(0, 0))
			}
			// The second of two commits has lost; what it is told is a conflict.
			if err != nil && !fault.Is(err, fault.RevisionConflict) && !errors.Is(err, binding.ErrFenced) {
				x.Errorf("%v", err)
			}
		})
		stands := x.load(id).Run.End
		for _, e := range ends {
			if !e.Open() && e != stands {
				x.Fatalf("told %v, stands %v", e, stands)
			}
		}
		x.terminate(g, stands)
	}
}
