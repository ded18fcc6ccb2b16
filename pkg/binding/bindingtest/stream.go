package bindingtest

import (
	"sync"
	"sync/atomic"

	"cofferdam.dev/pkg/fault"
)

func firstStream(x *world) {
	take := func(id, run string, want bool) {
		x.Helper()
		if first, err := x.w.TakeStream(x.ctx, id, run); first != want || err != nil {
			x.Fatalf("first: %v, %v, want %v", first, err, want)
		}
	}
	id, g := x.boundRunning()
	take(id, g.Envelope().RunID, false) // it awaits none

	id = x.bound()
	p := x.params(id, "k")
	p.AwaitsStream = true
	started, err := x.w.Start(x.ctx, p)
	x.must(err)
	take(id, "run_other", false)
	var updates, firsts atomic.Int32
	lossy := x.tapped(func(op string) Fate {
		if op == "Update" && updates.Add(1) == 1 {
			return LoseReply
		}
		return Deliver
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			first, err := lossy.w.TakeStream(x.ctx, id, p.RunID)
			if err != nil {
				x.Error(err)
			}
			if first {
				firsts.Add(1)
			}
		})
	}
	wg.Wait()
	if firsts.Load() != 1 {
		x.Fatalf("%d streams were the first one", firsts.Load())
	}
	if r := x.load(id); r.Run == nil || r.Revision != started.Record.Revision || r.Run.StreamNonce == "" {
		x.Fatalf("record %+v", r)
	}
	x.must(x.w.TakeOver(x.ctx, id, p.RunID, p.Owner, 0))
	take(id, p.RunID, false)
	if _, err := x.w.TakeStream(x.ctx, "hs_nobody", p.RunID); !fault.Is(err, fault.NotFound) {
		x.Fatalf("without a record: %v", err)
	}
}
