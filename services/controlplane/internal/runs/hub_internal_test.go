package runs

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/binding"
)

// What a hub gives is what was committed at that place, or it says that it does not
// know.
func TestWhatIsRecentIsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHub()
		h.drive("r", func() {})
		var log []json.RawMessage
		kept := 0 // how many of the last events must be known
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				b := binding.Batch{First: uint64(len(log))}
				size := rapid.SampledFrom([]int{1, 100, recentBytes / 3, 2 * recentBytes}).Draw(t, "size")
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					b.Events = append(b.Events, json.RawMessage(fmt.Sprintf("%0*d", size, len(log)+len(b.Events))))
				}
				log = append(log, b.Events...)
				kept = len(b.Events)
				h.appended("r", b)
			},
			"others": func(t *rapid.T) { // a terminal, or what another replica wrote
				n := rapid.IntRange(0, 3).Draw(t, "n")
				for range n {
					log = append(log, json.RawMessage("x"))
				}
				kept = 0
				h.grew("r", n)
			},
			"read": func(t *rapid.T) {
				from := rapid.IntRange(0, len(log)+2).Draw(t, "from")
				limit := rapid.IntRange(1, 10).Draw(t, "limit")
				events, ok := h.recent("r", uint64(from), limit) //nolint:gosec // drawn from 0 on
				if must := kept > 0 && from >= len(log)-kept && from <= len(log); must && !ok {
					t.Fatalf("%d of %d is not known", from, len(log))
				}
				if !ok {
					return
				}
				if len(events) == 0 && from != len(log) {
					t.Fatalf("nothing at %d of %d", from, len(log))
				}
				for i, e := range events {
					if string(e) != string(log[from+i]) {
						t.Fatalf("event %d is another", from+i)
					}
				}
				if len(events) > limit {
					t.Fatalf("%d events, limit %d", len(events), limit)
				}
			},
			"": func(t *rapid.T) {
				if l := h.runs["r"]; l.recentBytes > recentBytes && len(l.recent) > max(kept, 1) {
					t.Fatalf("%d bytes of %d events are kept", l.recentBytes, len(l.recent))
				}
			},
		})
		h.done("r")
		if _, ok := h.recent("r", 0, 1); ok {
			t.Fatal("it is known what stands in a run that is driven no more")
		}
	})
}
