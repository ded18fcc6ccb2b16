package bindingtest

import (
	"slices"
	"testing"

	"cofferdam.dev/pkg/binding"
)

// Invariant is one thing that holds whatever happens, with its test.
type Invariant struct {
	// ID is its number, "T01" and so on; docs/protocol.md uses the same.
	ID string
	// Name of the subtest, after the ID.
	Name string
	// Text says what holds.
	Text  string
	check func(x *world)
}

// Check fails tb where the invariant does not hold on b, which may be empty or
// in use.
func (i Invariant) Check(tb testing.TB, b binding.Backend) {
	tb.Helper()
	i.check(newWorld(tb, b))
}

// Invariants lists all of them in the order of their numbers: those of the back
// end, then those of the ten writes.
func Invariants() []Invariant {
	return slices.Concat(
		recordInvariants(), documentInvariants(),
		startInvariants(), appendInvariants(), endInvariants(), effectInvariants(), headInvariants(),
		leaseInvariants(), concludeInvariants(), resumeInvariants(), ownInvariants(), outcomeInvariants(), retentionInvariants(),
	)
}

// Run runs every invariant, each on a back end of its own that open gives and
// Run closes.
func Run(t *testing.T, open func(t *testing.T) binding.Backend) {
	t.Helper()
	for _, i := range Invariants() {
		t.Run(i.ID+"_"+i.Name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			i.Check(t, Watch(t, b))
		})
	}
}
