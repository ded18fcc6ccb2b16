package bindingtest

import (
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func ownInvariants() []Invariant {
	return []Invariant{
		{"T87", "beat", "Each beat of the owner shows, under the committed lease only.", beat},
		{"T88", "take_over", "A run is taken over only from the owner and the beat that were seen; it ends as lost unless its end was decided.", takeOver},
		{"T89", "take_over_race", "Of an owner that goes on and a replica that takes over, one wins.", takeOverRace},
	}
}

func beat(x *world) {
	id, g := x.boundRunning()
	before := x.load(id)
	for range 3 {
		x.must(x.w.Beat(x.ctx, g, owner))
	}
	if r := x.load(id); r.Run.OwnerBeat != 3 || r.Revision != before.Revision {
		x.Fatalf("record %+v", r)
	}
	x.replacements(func(what, id string, g fence.Grant) {
		x.Helper()
		if err := x.w.Beat(x.ctx, g, owner); !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: %v", what, err)
		}
		if r := x.load(id); r.Run != nil && r.Run.OwnerBeat != 0 {
			x.Fatalf("%s: %+v", what, r.Run)
		}
	})
}

func takeOver(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	x.must(x.w.Beat(x.ctx, g, owner))
	x.wantStale(x.w.TakeOver(x.ctx, id, run, owner, 0))
	x.wantStale(x.w.TakeOver(x.ctx, id, run, "replica-b/1", 1))
	x.wantStale(x.w.TakeOver(x.ctx, id, "run_other", owner, 1))
	for range 2 {
		x.must(x.w.TakeOver(x.ctx, id, run, owner, 1))
	}
	if r := x.load(id); r.Run != nil || r.EndingRun() == nil || r.EndingRun().Run.End.Kind != binding.EndLost || r.Generation != 1 || r.Lease == nil {
		x.Fatalf("record %+v", r)
	}
	x.wantStale(x.w.Beat(x.ctx, g, owner))
	x.conclude(id, run)

	id, g = x.boundRunning()
	_, err := x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	x.must(x.w.TakeOver(x.ctx, id, g.Envelope().RunID, owner, 0))
	if d := x.conclude(id, g.Envelope().RunID); d.End != cancelled() {
		x.Fatalf("ends as %v", d.End)
	}
}

func takeOverRace(x *world) {
	for range 4 {
		id, g := x.boundRunning()
		run := g.Envelope().RunID
		var beaten, taken error
		race(2, func(i int) {
			if i == 0 {
				beaten = x.w.Beat(x.ctx, g, owner)
			} else {
				taken = x.w.TakeOver(x.ctx, id, run, owner, 0)
			}
		})
		active := x.load(id).Run != nil
		if (beaten == nil) == (taken == nil) || active != (beaten == nil) {
			x.Fatalf("beat %v, taken over %v, active %v", beaten, taken, active)
		}
	}
}
