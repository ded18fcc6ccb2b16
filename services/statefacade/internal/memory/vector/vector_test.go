package vector_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"cofferdam.dev/services/statefacade/internal/memory/lexical"
	"cofferdam.dev/services/statefacade/internal/memory/vector"
)

func unit(t *testing.T, of ...float64) vector.Vector {
	t.Helper()
	v, ok := vector.Unit(of)
	if !ok {
		t.Fatalf("%v has no direction", of)
	}
	return v
}

func TestNear(t *testing.T) {
	v := unit(t, 3, 4)
	for want, other := range map[float64][]float64{1: {30, 40}, 0: {4, -3}, -1: {-3, -4}} {
		if near, ok := v.Near(unit(t, other...).Bytes()); !ok || math.Abs(near-want) > 1e-6 {
			t.Errorf("%v is near by %f, %v, want %f", other, near, ok, want)
		}
	}
	for _, stored := range [][]byte{nil, {1}, unit(t, 1, 2, 3).Bytes(), unit(t, 1).Bytes()} {
		if _, ok := v.Near(stored); ok {
			t.Errorf("%d bytes are compared", len(stored))
		}
	}
	nan := unit(t, 1, 1).Bytes()
	nan[2], nan[3] = 0xc0, 0x7f // not a number
	if _, ok := v.Near(nan); ok {
		t.Error("what is no number is compared")
	}
	for _, of := range [][]float64{nil, {0, 0}, {math.NaN(), 1}, {math.Inf(1), 1}} {
		if _, ok := vector.Unit(of); ok {
			t.Errorf("%v has a direction", of)
		}
	}
	if _, ok := vector.Unit([]float64{math.MaxFloat64, 1}); !ok {
		t.Error("a very long one has no direction")
	}
}

// The best of any number in any order are the same as of all of them sorted.
func TestNearest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	var all []lexical.Scored
	for n := range 500 {
		all = append(all, lexical.Scored{ID: fmt.Sprintf("%03d", n), Score: float64(random.IntN(40)-5) / 40})
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n := vector.Nearest{Limit: 50}
	for _, s := range all {
		n.Take(s)
	}
	slices.SortFunc(all, func(a, b lexical.Scored) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
	})
	if got := n.Found(); !slices.Equal(got, all[:50]) {
		t.Errorf("got %v, want %v", got, all[:50])
	}
	none := vector.Nearest{Limit: 3}
	none.Take(lexical.Scored{ID: "far", Score: 0})
	none.Take(lexical.Scored{ID: "opposite", Score: -1})
	if len(none.Found()) != 0 {
		t.Errorf("got %v", none.Found())
	}
}
