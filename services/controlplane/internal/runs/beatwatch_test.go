package runs

import (
	"testing"
	"time"
)

// A beat counts as still only where it was looked at for a whole interval: a
// replica that has slept as long as the owner takes nothing from it.
func TestABeatIsWatchedTheWholeInterval(t *testing.T) {
	const interval = 10 * time.Second
	now := time.Unix(1_000_000, 0)
	w := newBeatWatch(func() time.Time { return now })
	look := func(after time.Duration, beat uint64) bool {
		now = now.Add(after)
		return w.still("run", beat, interval)
	}
	for i, step := range []struct {
		after time.Duration
		beat  uint64
		want  bool
	}{
		{0, 1, false},
		{4 * time.Second, 1, false},
		{4 * time.Second, 2, false}, // it has beaten
		{5 * time.Second, 2, false},
		{time.Hour, 2, false}, // this replica has slept
		{5 * time.Second, 2, false},
		{4 * time.Second, 2, false},
		{time.Second, 2, true},
	} {
		if got := look(step.after, step.beat); got != step.want {
			t.Errorf("look %d: still = %v, want %v", i, got, step.want)
		}
	}
	w.reset() // the store was away
	if look(time.Second, 2) {
		t.Error("what was seen before the store was away counts")
	}
}

// However short the interval is, a beat that stands still is seen to do so.
func TestABeatIsLookedAtOftenEnough(t *testing.T) {
	for _, interval := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 1500 * time.Millisecond, DefaultTakeOverAfter} {
		c := Config{TakeOverAfter: interval}.withDefaults()
		now := time.Unix(1_000_000, 0)
		w := newBeatWatch(func() time.Time { return now })
		still := false
		for range 2 * interval / c.ReconcileEvery {
			still = w.still("run", 1, interval)
			now = now.Add(c.ReconcileEvery)
		}
		if !still {
			t.Errorf("a dead owner's run is never taken over after %v, looking every %v", interval, c.ReconcileEvery)
		}
	}
}
