package fence_test

import (
	"math"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

var now = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func committed() fence.Committed {
	return fence.Committed{BindingID: "hs_1", Epoch: 3, Generation: 5, RunID: "run_1", RunDeadline: now.Add(time.Hour), Owner: "replica/1", Instance: "i"}
}

func envelope() fence.Envelope {
	return fence.Envelope{BindingID: "hs_1", Epoch: 3, Generation: 5, RunID: "run_1", RequestID: "req", IdempotencyKey: "k", Deadline: now.Add(time.Minute)}
}

// cases are every way in which an envelope can differ from committed state.
// lease is the answer to a call that concerns no run.
func cases() []struct {
	what       string
	change     func(*fence.Committed, *fence.Envelope)
	run, lease fault.Code
} {
	const ok, stale, late = fault.Code(""), fault.StaleLease, fault.DeadlineExceeded
	return []struct {
		what       string
		change     func(*fence.Committed, *fence.Envelope)
		run, lease fault.Code
	}{
		{"exact", func(*fence.Committed, *fence.Envelope) {}, ok, ok},
		{"lower generation", func(_ *fence.Committed, e *fence.Envelope) { e.Generation = 4 }, stale, stale},
		{"higher generation", func(_ *fence.Committed, e *fence.Envelope) { e.Generation = 6 }, stale, stale},
		{"generation 0", func(_ *fence.Committed, e *fence.Envelope) { e.Generation = 0 }, stale, stale},
		{"generation 0 on both sides", func(c *fence.Committed, e *fence.Envelope) { c.Generation, e.Generation = 0, 0 }, stale, stale},
		{"highest generation", func(_ *fence.Committed, e *fence.Envelope) { e.Generation = math.MaxUint32 }, stale, stale},
		{"highest generation on both sides", func(c *fence.Committed, e *fence.Envelope) {
			c.Generation, e.Generation = math.MaxUint32, math.MaxUint32
		}, ok, ok},
		{"lower epoch", func(_ *fence.Committed, e *fence.Envelope) { e.Epoch = 2 }, stale, stale},
		{"higher epoch", func(_ *fence.Committed, e *fence.Envelope) { e.Epoch = 4 }, stale, stale},
		{"epoch and generation swapped", func(_ *fence.Committed, e *fence.Envelope) { e.Epoch, e.Generation = 5, 3 }, stale, stale},
		{"other binding", func(_ *fence.Committed, e *fence.Envelope) { e.BindingID = "hs_2" }, stale, stale},
		{"no binding", func(_ *fence.Committed, e *fence.Envelope) { e.BindingID = "" }, stale, stale},
		{"no binding on both sides", func(c *fence.Committed, e *fence.Envelope) { c.BindingID, e.BindingID = "", "" }, stale, stale},
		{"other run", func(_ *fence.Committed, e *fence.Envelope) { e.RunID = "run_2" }, stale, ok},
		{"run in other letters", func(_ *fence.Committed, e *fence.Envelope) { e.RunID = "RUN_1" }, stale, ok},
		{"no run named", func(_ *fence.Committed, e *fence.Envelope) { e.RunID = "" }, stale, ok},
		{"no run active", func(c *fence.Committed, _ *fence.Envelope) { c.RunID = "" }, stale, ok},
		{"no run named, none active", func(c *fence.Committed, e *fence.Envelope) { c.RunID, e.RunID = "", "" }, stale, ok},
		{"own deadline now", func(_ *fence.Committed, e *fence.Envelope) { e.Deadline = now }, late, late},
		{"own deadline in a moment", func(_ *fence.Committed, e *fence.Envelope) { e.Deadline = now.Add(1) }, ok, ok},
		{"no deadline", func(_ *fence.Committed, e *fence.Envelope) { e.Deadline = time.Time{} }, late, late},
		{"run's deadline now", func(c *fence.Committed, _ *fence.Envelope) { c.RunDeadline = now }, late, ok},
		{"run's deadline in a moment", func(c *fence.Committed, _ *fence.Envelope) { c.RunDeadline = now.Add(1) }, ok, ok},
		{"stale and late", func(_ *fence.Committed, e *fence.Envelope) { e.Generation, e.Deadline = 4, now }, stale, stale},
		{"other request, key, trace", func(_ *fence.Committed, e *fence.Envelope) {
			e.RequestID, e.IdempotencyKey, e.Traceparent = "x", "y", "z"
		}, ok, ok},
		{"other owner and instance", func(c *fence.Committed, _ *fence.Envelope) { c.Owner, c.Instance = "other", "other" }, ok, ok},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		s, e := committed(), envelope()
		c.change(&s, &e)
		if got := fault.CodeOf(fence.Check(s, e, now)); got != c.run {
			t.Errorf("%s: %q, want %q", c.what, got, c.run)
		}
		if got := fault.CodeOf(fence.CheckLease(s, e, now)); got != c.lease {
			t.Errorf("%s, lease: %q, want %q", c.what, got, c.lease)
		}
	}
}
