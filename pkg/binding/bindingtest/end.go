package bindingtest

import (
	"fmt"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func endInvariants() []Invariant {
	return []Invariant{
		{"T36", "end_set_once", "The end is set once: the first one stands, and every later one is told which.", endSetOnce},
		{"T37", "end_acknowledged", "A cancel that comes after the run left service is told how it ended.", endAcknowledged},
		{"T38", "end_replaced", "No end is set for another generation, epoch or run than the committed one.", endReplaced},
		{"T39", "success_needs_head", "No run ends as success or interrupted but by a head commit.", successNeedsHead},
		{"T40", "terminal_agrees", "A terminal is written only once the end is decided, and only one that tells that end.", terminalAgrees},
		{"T41", "terminal_once", "A run gets one terminal, as its last event, in the write in which it leaves service.", terminalOnce},
		{"T42", "terminal_replaced", "No terminal is written by who has been replaced or taken over.", terminalReplaced},
		{"T43", "terminal_revoked", "No terminal is written while an admitted effect could still begin.", terminalRevoked},
	}
}

func endSetOnce(x *world) {
	id, g := x.boundRunning()
	ends := []binding.End{
		cancelled(),
		{Kind: binding.EndCancelling, Reason: "deadline"},
		{Kind: binding.EndError, Reason: string(fault.ModelFailed)},
		{Kind: binding.EndLost},
	}
	var n tally
	race(8, func(i int) {
		stands, err := x.w.SetEnd(x.ctx, g, ends[i%4])
		if err != nil {
			x.Errorf("set end: %v", err)
		}
		n.add(fmt.Sprint(stands))
	})
	stands := x.load(id).Run.End
	if n.of(fmt.Sprint(stands)) != 8 || stands.Open() {
		x.Fatalf("ends %v, stands %v", n.n, stands)
	}
	x.append0(g)
}

// append0 checks that nothing can be appended.
func (x *world) append0(g fence.Grant) {
	x.Helper()
	if _, err := x.w.Append(x.ctx, g, owner, batch(x.load(g.Envelope().BindingID).Run.EventHead, "late")); err == nil {
		x.Fatal("an event was taken after the end")
	}
}

func endAcknowledged(x *world) {
	id, g := x.boundRunning()
	failed := binding.End{Kind: binding.EndError, Reason: string(fault.RateLimited), RetryAfterSeconds: binding.MaxRetryAfterSeconds}
	x.finish(g, failed)
	told := func(where string) {
		x.Helper()
		stands, err := x.w.SetEnd(x.ctx, g, cancelled())
		if err != nil || stands != failed {
			x.Fatalf("%s: %v, %v", where, stands, err)
		}
	}
	told("ending")
	x.conclude(id, g.Envelope().RunID)
	told("ended")
	x.running(id, "next")
	told("another run is active")
	if e := x.load(id).Run.End; !e.Open() {
		x.Fatalf("the other run ends as %v", e)
	}
}

func endReplaced(x *world) {
	id, g := x.boundRunning()
	x.replace(id) // carries the run over
	_, err := x.w.SetEnd(x.ctx, g, cancelled())
	x.wantStale(err)
	if e := x.load(id).Run.End; !e.Open() {
		x.Fatalf("the run ends as %v", e)
	}
	now := x.grant(id)
	x.append(now, "a")
	x.replace(id) // takes it out of service
	_, err = x.w.SetEnd(x.ctx, g, cancelled())
	x.wantStale(err)
	stands, err := x.w.SetEnd(x.ctx, now, cancelled())
	x.must(err)
	if stands.Kind != binding.EndLost {
		x.Fatalf("ends as %v", stands)
	}
	x.conclude(id, g.Envelope().RunID)
	_, err = x.w.SetEnd(x.ctx, g, cancelled())
	x.wantStale(err)
}

func successNeedsHead(x *world) {
	id, g := x.boundRunning()
	for _, e := range []binding.End{
		{Kind: binding.EndSuccess},
		{Kind: binding.EndInterrupted},
		{},
		{Kind: "other"},
		{Kind: binding.EndCancelling, Reason: "whim"},
		{Kind: binding.EndCancelling},
		{Kind: binding.EndError, Reason: "unheard_of"},
		{Kind: binding.EndError, Reason: string(fault.RateLimited), RetryAfterSeconds: binding.MaxRetryAfterSeconds + 1},
		{Kind: binding.EndCancelling, Reason: "deadline", RetryAfterSeconds: 1},
		{Kind: binding.EndLost, RetryAfterSeconds: 1},
	} {
		_, err := x.w.SetEnd(x.ctx, g, e)
		x.wantFault(err, fault.Internal)
	}
	if e := x.load(id).Run.End; !e.Open() {
		x.Fatalf("the run ends as %v", e)
	}
}

func terminalAgrees(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	_, err := x.w.Terminate(x.ctx, g, owner, batch(1, "t"), cancelled())
	x.wantIs(err, binding.ErrEndOpen)
	_, err = x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	for _, e := range []binding.End{{Kind: binding.EndSuccess}, {Kind: binding.EndCancelling, Reason: "deadline"}, {Kind: binding.EndLost}} {
		stands, err := x.w.Terminate(x.ctx, g, owner, batch(1, "t"), e)
		x.wantIs(err, binding.ErrEndDisagrees)
		if stands != cancelled() {
			x.Fatalf("told %v", stands)
		}
	}
	_, err = x.w.Terminate(x.ctx, g, owner, batch(0, "t"), cancelled())
	x.wantStale(err)
	if r := x.load(id); r.Run == nil || r.Run.EventHead != 1 {
		x.Fatalf("record %+v", r)
	}
}

func terminalOnce(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	x.append(g, "a")
	_, err := x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	revision := x.load(id).Revision
	bt := batch(1, "closing", "terminal")
	again := func(where string) {
		x.Helper()
		stands, err := x.w.Terminate(x.ctx, g, owner, bt, cancelled())
		if err != nil || stands != cancelled() {
			x.Fatalf("%s: %v, %v", where, stands, err)
		}
	}
	other := func(where string, first uint64) {
		x.Helper()
		if _, err := x.w.Terminate(x.ctx, g, owner, batch(first, "terminal"), cancelled()); !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: a second terminal: %v", where, err)
		}
	}
	again("first")
	r := x.load(id)
	if e := r.EndingRun(); r.Run != nil || e == nil || !e.Terminal || e.Run.ID != run || e.Generation != 1 || r.Revision != revision+1 || r.Lease == nil {
		x.Fatalf("record %+v", r)
	}
	again("ending")
	other("ending", 1)
	other("ending", 3)
	x.must(x.w.PutTerminal(x.ctx, id, run, batch(3, "second"))) // has one: nothing to do
	x.wantLog(id, run, true, "a", "closing", "terminal")
	d := x.conclude(id, run)
	if string(d.Terminal) != string(event("terminal")) || d.Events != 3 {
		x.Fatalf("document %+v", d)
	}
	again("ended")
	other("ended", 3)
	x.wantLog(id, run, true, "a", "closing", "terminal")
}

func terminalReplaced(x *world) {
	terminalCarried(x)
	for what, act := range map[string]func(id string, g fence.Grant){
		"replaced":   func(id string, _ fence.Grant) { x.replace(id) },
		"cleared":    func(id string, _ fence.Grant) { x.clear(id) },
		"taken over": func(id string, g fence.Grant) { x.must(x.w.TakeOver(x.ctx, id, g.Envelope().RunID, owner, 0)) },
	} {
		id, g := x.boundRunning()
		_, err := x.w.SetEnd(x.ctx, g, cancelled())
		x.must(err)
		act(id, g)
		if _, err := x.w.Terminate(x.ctx, g, owner, batch(0, "late"), cancelled()); !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: %v", what, err)
		}
		// In ending, with nothing added.
		if e := x.load(id); e.EndingRun() == nil || e.EndingRun().Terminal || e.EndingRun().Run.EventHead != 0 || e.EndingRun().Run.End != cancelled() {
			x.Fatalf("%s: record %+v", what, e)
		}
	}
}

func terminalCarried(x *world) {
	id, g := x.boundRunning()
	x.replace(id) // carries the run over
	_, err := x.w.SetEnd(x.ctx, x.grant(id), cancelled())
	x.must(err)
	_, err = x.w.Terminate(x.ctx, g, owner, batch(0, "late"), cancelled())
	x.wantStale(err)
	if r := x.load(id); r.Run == nil {
		x.Fatalf("record %+v", r)
	}
}

func terminalRevoked(x *world) {
	_, g := x.boundRunning()
	x.admitOnly(g, "k")
	_, err := x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	_, err = x.w.Terminate(x.ctx, g, owner, batch(0, "t"), cancelled())
	x.wantIs(err, binding.ErrNotRevoked)
	x.terminate(g, cancelled()) // which revokes first

	id, g := x.boundRunning()
	x.admitOnly(g, "k")
	x.replace(id)
	x.wantIs(x.w.PutTerminal(x.ctx, id, g.Envelope().RunID, batch(0, "t")), binding.ErrNotRevoked)
	x.conclude(id, g.Envelope().RunID)
}
