package bindingtest

import (
	"fmt"
	"math"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
)

func leaseInvariants() []Invariant {
	return []Invariant{
		{"T68", "replace_raises_generation", "A replacement raises the generation, keeps the old lease to be concluded, and names the new claim.", replaceRaises},
		{"T69", "replace_carries_over", "A replacement carries over only a run that has done nothing: no event, never an admission, end open.", replaceCarries},
		{"T70", "replace_once", "A generation is replaced once; who repeats or races is told what stands.", replaceOnce},
		{"T71", "lease_of_its_generation", "What becomes known of a lease is kept only for its own generation.", leaseGeneration},
		{"T72", "ending_bounded", "A record that cannot get rid of its leases is given no more.", endingBounded},
		{"T73", "clear", "A clear raises epoch and generation, resets head and interrupt, and leaves run and lease to be concluded, the run as lost.", clearMoves},
		{"T74", "clear_once", "An epoch is cleared once; who repeats or races is told what stands.", clearOnce},
	}
}

func replaceRaises(x *world) {
	id := x.bound()
	before := x.load(id)
	r, err := x.w.Replace(x.ctx, id, 1, 1, name(id), "gpu")
	x.must(err)
	if r.Generation != 2 || r.Epoch != 1 || r.Revision != before.Revision+1 || r.Lease == nil || r.Lease.ClaimName != binding.ClaimName(id, 2) ||
		r.Lease.Profile != "gpu" || r.Lease.State != binding.LeaseClaiming || r.Lease.InstanceUID != "" {
		x.Fatalf("record %+v, lease %+v", r, r.Lease)
	}
	if len(r.Ending) != 1 || *r.Ending[0].Lease != *before.Lease || r.Ending[0].Generation != 1 || r.Ending[0].Epoch != 1 {
		x.Fatalf("ending %+v", r.Ending)
	}
	_, err = x.w.Replace(x.ctx, "hs_unknown", 1, 0, name(id), "gpu")
	x.wantFault(err, fault.NotFound)
	_, err = x.w.Replace(x.ctx, id, 1, math.MaxUint32, name(id), "gpu")
	x.wantFault(err, fault.Internal)
}

func replaceCarries(x *world) {
	for what, c := range map[string]struct {
		act   func(id string)
		carry bool
		end   binding.EndKind
	}{
		"nothing":   {func(string) {}, true, binding.EndOpen},
		"only beat": {func(id string) { x.must(x.w.Beat(x.ctx, x.grant(id), owner)) }, true, binding.EndOpen},
		"an event":  {func(id string) { x.append(x.grant(id), "a") }, false, binding.EndLost},
		"admitted":  {func(id string) { x.admitOnly(x.grant(id), "k") }, false, binding.EndLost},
		"admitted and concluded": {func(id string) {
			var n counter
			_, err := binding.NewEffects(x.w).Do(x.ctx, x.grant(id), tool("k"), n.act)
			x.must(err)
			if len(x.load(id).Run.Admitted) != 0 {
				x.Fatal("the key is still there")
			}
		}, false, binding.EndLost},
		"cancelled": {func(id string) {
			_, err := x.w.SetEnd(x.ctx, x.grant(id), cancelled())
			x.must(err)
		}, false, binding.EndCancelling},
	} {
		id, g := x.boundRunning()
		c.act(id)
		before := x.load(id).Run
		r := x.replace(id)
		if c.carry {
			if r.Run == nil || r.Run.ID != before.ID || r.EndingRun() != nil {
				x.Fatalf("%s: not carried over: %+v", what, r)
			}
			x.append(x.grant(id), "in the new generation")
			continue
		}
		e := r.EndingRun()
		if r.Run != nil || e == nil || e.Run.ID != before.ID || e.Run.End.Kind != c.end || e.Generation != 1 || e.Terminal {
			x.Fatalf("%s: %+v", what, r)
		}
		if d := x.conclude(id, g.Envelope().RunID); d.End.Kind != c.end || d.Generation != 1 {
			x.Fatalf("%s: %+v", what, d)
		}
	}
}

func replaceOnce(x *world) {
	id := x.bound()
	race(8, func(int) {
		r, err := x.w.Replace(x.ctx, id, 1, 1, name(id), "default")
		if err != nil || r.Generation != 2 || r.Lease.ClaimName != binding.ClaimName(id, 2) {
			x.Errorf("replace: %+v, %v", r, err)
		}
	})
	if r := x.load(id); r.Generation != 2 || len(r.Ending) != 1 {
		x.Fatalf("record %+v", r)
	}
	for _, c := range []struct{ epoch, generation uint32 }{{1, 0}, {1, 3}, {0, 2}, {2, 2}} {
		_, err := x.w.Replace(x.ctx, id, c.epoch, c.generation, name(id), "default")
		x.wantStale(err)
	}
	_, err := x.w.Replace(x.ctx, id, 1, 1, func(uint32) string { return "other" }, "default")
	x.wantStale(err)
	x.replace(id)
	_, err = x.w.Replace(x.ctx, id, 1, 1, name(id), "default")
	x.wantStale(err)
}

func leaseGeneration(x *world) {
	id := x.bound()
	r, err := x.w.UpdateLease(x.ctx, id, 1, 1, func(l *binding.Lease) { l.ClaimName, l.InstanceUID, l.State = "other", "pod-uid", binding.LeaseReady })
	x.must(err)
	if r.Lease.InstanceUID != "pod-uid" || r.Lease.ClaimName != binding.ClaimName(id, 1) || r.Revision != x.load(id).Revision {
		x.Fatalf("lease %+v", r.Lease)
	}
	x.replace(id)
	for _, c := range []struct{ epoch, generation uint32 }{{1, 1}, {1, 3}, {2, 2}} {
		_, err := x.w.UpdateLease(x.ctx, id, c.epoch, c.generation, func(l *binding.Lease) { l.InstanceUID = "old-pod" })
		x.wantStale(err)
	}
	if l := x.load(id).Lease; l.InstanceUID != "" {
		x.Fatalf("lease %+v", l)
	}
	_, err = x.w.Clear(x.ctx, id, 1, 2, nil, "")
	x.must(err)
	_, err = x.w.UpdateLease(x.ctx, id, 2, 3, func(*binding.Lease) {})
	x.wantStale(err)
	r, err = x.w.Replace(x.ctx, id, 2, 3, name(id), "default")
	x.must(err)
	if r.Generation != 4 || r.Lease == nil {
		x.Fatalf("record %+v", r)
	}
}

func endingBounded(x *world) {
	id := x.bound()
	for range binding.MaxEnding {
		x.replace(id)
	}
	r := x.load(id)
	_, err := x.w.Replace(x.ctx, id, 1, r.Generation, name(id), "default")
	x.wantFault(err, fault.Capacity)
	_, err = x.w.Clear(x.ctx, id, 1, r.Generation, name(id), "default")
	x.wantFault(err, fault.Capacity)
	x.must(x.w.DropLease(x.ctx, id, binding.ClaimName(id, 7)))
	x.must(x.w.DropLease(x.ctx, id, binding.ClaimName(id, 7)))
	x.replace(id)
	if r := x.load(id); len(r.Ending) != binding.MaxEnding {
		x.Fatalf("%d are ending", len(r.Ending))
	}
}

func clearMoves(x *world) {
	id, _ := x.interrupted()
	g := x.running(id, "second")
	run := g.Envelope().RunID
	before := x.load(id)
	r, err := x.w.Clear(x.ctx, id, 1, 1, name(id), "default")
	x.must(err)
	if r.Epoch != 2 || r.Generation != 2 || (r.Head != binding.Head{}) || r.Interrupt != nil || r.Resumed != nil || r.Run != nil ||
		r.Revision != before.Revision+1 || r.Lease == nil || r.Lease.ClaimName != binding.ClaimName(id, 2) {
		x.Fatalf("record %+v", r)
	}
	e := r.EndingRun()
	if e == nil || e.Run.ID != run || e.Run.End.Kind != binding.EndLost || e.Epoch != 1 || len(r.Ending) != 2 {
		x.Fatalf("ending %+v", r.Ending)
	}
	// Nothing starts in the new epoch until the old run is concluded; a cancel that
	// was decided before stays.
	_, err = x.w.Start(x.ctx, x.params(id, "third"))
	x.wantFault(err, fault.AlreadyRunning)
	if d := x.conclude(id, run); d.End.Kind != binding.EndLost || d.Epoch != 1 || d.HeadRevision != 0 {
		x.Fatalf("document %+v", d)
	}
	g = x.running(id, "third")
	_, err = x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	if e := x.clear(id); e.EndingRun().Run.End != cancelled() {
		x.Fatalf("ends as %v", e.EndingRun().Run.End)
	}
}

func clearOnce(x *world) {
	id := x.bound()
	race(8, func(int) {
		r, err := x.w.Clear(x.ctx, id, 1, 1, name(id), "default")
		if err != nil || r.Epoch != 2 {
			x.Errorf("clear: %+v, %v", r, err)
		}
	})
	if r := x.load(id); r.Epoch != 2 || r.Generation != 2 {
		x.Fatalf("record %+v", r)
	}
	for _, c := range []struct{ epoch, generation uint32 }{{2, 1}, {2, 3}, {3, 2}} {
		_, err := x.w.Clear(x.ctx, id, c.epoch, c.generation, name(id), "default")
		x.wantStale(err)
	}
	_, err := x.w.Clear(x.ctx, "hs_unknown", 1, 1, nil, "")
	x.wantFault(err, fault.NotFound)
	if fmt.Sprint(x.load(id).Epoch) != "2" {
		x.Fatal("cleared twice")
	}
}

// replaceIdle: the record was read without a run, and one has started since.
func replaceIdle(x *world) {
	id, _ := x.boundRunning()
	before := x.load(id)
	_, err := x.w.ReplaceIdle(x.ctx, id, before.Epoch, before.Generation, func(g uint32) string { return binding.ClaimName(id, g) }, "p")
	x.wantFault(err, fault.StaleLease)
	if now := x.load(id); now.Generation != before.Generation || now.Run == nil || now.Run.ID != before.Run.ID || len(now.Ending) != 0 {
		x.Fatalf("%+v", now)
	}
	for what, wake := range map[string]func() string{
		"start":  func() string { return x.bound() },
		"resume": func() string { id, _ := x.interrupted(); return id },
	} {
		id := wake()
		before := x.load(id)
		r, err := x.w.ReplaceIdle(x.ctx, id, before.Epoch, before.Generation, name(id), "p")
		x.must(err)
		if r.Generation != before.Generation+1 || r.Lease.State != binding.LeaseHibernated || r.Lease.InstanceUID != "" || r.Lease.ClaimName != name(id)(r.Generation) {
			x.Fatalf("%+v", r.Lease)
		}
		x.concludeAll(id)
		if what == "start" {
			_, err = x.w.Start(x.ctx, x.params(id, "key"))
		} else {
			_, err = x.w.Resume(x.ctx, x.decision(id, *r.Interrupt, "yes"))
		}
		x.must(err)
		if now := x.load(id); now.Generation != r.Generation || now.Lease.State != binding.LeaseClaiming || now.Lease.ClaimName != r.Lease.ClaimName {
			x.Fatalf("%s: %+v", what, now.Lease)
		}
	}
}
