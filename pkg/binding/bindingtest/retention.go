package bindingtest

import (
	"cmp"
	"crypto/rand"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
)

func retentionInvariants() []Invariant {
	return []Invariant{
		{"T99", "ended_in_order", "Runs whose log is kept are found in the order in which they ended, from any of them on; what is forgotten is not found again.", endedInOrder},
		{"T100", "log_forgotten", "The log of a run that ended before a time is forgotten, and how it ended is not; that of a run whose question waits, or that is not concluded, stays.", logForgotten},
	}
}

// longAgo is a time at which nothing else on a back end that is in use has ended.
func longAgo() time.Time {
	b := make([]byte, 2)
	_, _ = rand.Read(b) // never fails
	return time.Date(2001, 2, 3, int(b[0]), int(b[1]), 6, 7000, time.UTC)
}

func endedInOrder(x *world) {
	at := longAgo()
	var want []binding.EndedRun
	for i, later := range []time.Duration{0, 0, 0, time.Microsecond, time.Second, time.Second} {
		run := binding.EndedRun{RunID: "run_" + string(rune('f'-i)) + rand.Text(), BindingID: "hs_x", EndedAt: at.Add(later)}
		x.must(x.b.PutRun(x.ctx, binding.RunDocument{
			RunID: run.RunID, BindingID: run.BindingID, EndedAt: run.EndedAt.Add(5 * time.Nanosecond), End: cancelled(), Terminal: event("t"),
		}))
		want = append(want, run)
	}
	slices.SortFunc(want, func(a, b binding.EndedRun) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.RunID, b.RunID))
	})
	found := func(before time.Time, page int) (out []binding.EndedRun) {
		for after := (binding.EndedRun{EndedAt: at.Add(-time.Microsecond)}); ; {
			got, err := x.b.EndedRuns(x.ctx, before, after, page)
			x.must(err)
			out = append(out, got...)
			if len(got) < page {
				return out
			}
			after = got[len(got)-1]
		}
	}
	for _, page := range []int{1, 2, 3, 100} {
		if got := found(at.Add(time.Minute), page); !slices.Equal(got, want) {
			x.Fatalf("pages of %d: %+v, want %+v", page, got, want)
		}
	}
	if got := found(at.Add(time.Second), 2); !slices.Equal(got, want[:4]) {
		x.Fatalf("before the last: %+v, want %+v", got, want[:4])
	}
	for range 2 {
		x.must(x.b.ForgetLog(x.ctx, want[1].RunID))
	}
	if got := found(at.Add(time.Minute), 2); !slices.Equal(got, slices.Delete(slices.Clone(want), 1, 2)) {
		x.Fatalf("without one: %+v", got)
	}
	x.wantIs(x.b.ForgetLog(x.ctx, "run_unknown"), binding.ErrNotFound)
}

func logForgotten(x *world) {
	at := longAgo()
	ended := newWorld(x.TB, x.b)
	ended.w = binding.NewWriter(x.b, func() time.Time { return at })
	before := at.Add(time.Second)
	forget := func() {
		x.Helper()
		_, err := x.w.ForgetLogs(x.ctx, before)
		x.must(err)
	}
	id, g := ended.boundRunning()
	run := g.Envelope().RunID
	ended.append(g, "a")
	ended.finish(g, cancelled())
	forget() // it is not concluded
	ended.conclude(id, run)
	want, err := x.b.LoadRun(x.ctx, run)
	x.must(err)
	asked, i := ended.interrupted()
	away := x.tapped(func(op string) Fate {
		if op == "ForgetLog" {
			return LoseRequest
		}
		return Deliver
	})
	if n, err := away.w.ForgetLogs(x.ctx, before); err == nil || n > 0 {
		x.Fatalf("%d are forgotten by a store that is away, %v", n, err)
	}
	for range 2 {
		forget()
		_, err := x.w.Events(x.ctx, id, run, 0, 0)
		x.wantFault(err, fault.NotFound)
	}
	if chunks, err := x.b.Chunks(x.ctx, run, 0, 10); err != nil || len(chunks) > 0 {
		x.Fatalf("%d chunks are there, %v", len(chunks), err)
	}
	got, err := x.b.LoadRun(x.ctx, run)
	x.must(err)
	if !got.Forgotten || got.End != want.End || got.Events != want.Events {
		x.Fatalf("document %+v, was %+v", got, want)
	}
	p, err := x.w.Events(x.ctx, asked, i.RunID, 0, 0)
	if err != nil || len(p.Events) == 0 {
		x.Fatalf("of the run that asks: %d events, %v", len(p.Events), err)
	}
	x.must(x.w.ExpireInterrupt(x.ctx, asked, i.ID, i.Revision))
	forget()
	_, err = x.w.Events(x.ctx, asked, i.RunID, 0, 0)
	x.wantFault(err, fault.NotFound)
}
