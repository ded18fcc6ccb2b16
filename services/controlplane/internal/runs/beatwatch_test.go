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
