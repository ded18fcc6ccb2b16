package process

import (
	"slices"
	"testing"

	"cofferdam.dev/pkg/isolation"
)

// No id is two sandboxes', of one provider or of two.
func TestHostIDsAreNobodyElses(t *testing.T) {
	a, err := takeHostIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := takeHostIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for _, h := range []*hostIDs{a, b} {
		for range 100 {
			id, err := h.take()
			if err != nil || seen[id] || id < firstHostID || id+isolation.IDsPerSandbox-1 > lastHostID {
				t.Fatalf("id %d, %v", id, err)
			}
			for i := range uint32(isolation.IDsPerSandbox) {
				seen[id+i] = true
			}
		}
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}

func TestHostIDsComeToAnEnd(t *testing.T) {
	h, err := takeHostIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.close() }()
	var all []uint32
	for {
		id, err := h.take()
		if err != nil {
			break
		}
		all = append(all, id)
	}
	if len(all) < 2*MostInstances {
		t.Errorf("there are ids for %d sandboxes, and %d may live beside those that end", len(all), MostInstances)
	}
	h.give(all[5])
	if id, err := h.take(); err != nil || id != all[5] {
		t.Errorf("an id that was given back: %d, %v", id, err)
	}
	if !slices.IsSorted(all) {
		t.Error("ids are not taken in order")
	}
	var none *hostIDs
	if id, err := none.take(); id != 0 || err != nil || none.close() != nil {
		t.Errorf("without root: %d, %v", id, err)
	}
}
