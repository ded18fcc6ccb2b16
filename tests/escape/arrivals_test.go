package escape

import (
	"net/netip"
	"testing"

	"cofferdam.dev/tests/internal/procs"
)

// arrivals is how often each forbidden thing was reached by now, after each has
// shown the test that it is there.
func (w *world) arrivals(t *testing.T) []int64 {
	t.Helper()
	counts := make([]int64, len(w.forbidden))
	for i, f := range w.forbidden {
		if err := f.Dial(t.Context()); err != nil {
			t.Errorf("%s does not answer, so that silence means nothing: %v", f.What, err)
		}
		counts[i] = f.Reached()
	}
	return counts
}

// nobodyCame sees that no forbidden thing was reached since.
func (w *world) nobodyCame(t *testing.T, before []int64) {
	t.Helper()
	for i, f := range w.forbidden {
		if came := f.Reached() - before[i]; came != 0 {
			t.Errorf("%s at %s was reached %d times", f.What, f.Address, came)
		}
	}
}

// listeners are the addresses at which the parts of the stack accept connections.
func (w *world) listeners(t *testing.T) (all []netip.AddrPort) {
	t.Helper()
	processes, err := w.Processes()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.AddrPort]bool{}
	for _, p := range processes {
		if program := p.Program(); program == "worker" || program == "runner" || !p.Alive() {
			continue // what listens in a sandbox is another matter
		}
		found, err := procs.Listeners(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found {
			if !seen[a] {
				seen[a] = true
				all = append(all, a)
			}
		}
	}
	if len(all) < 8 {
		t.Fatalf("the stack listens at %v only", all)
	}
	return all
}
