package kubernetes

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// keptTraces is of how many names it is remembered which claims had them.
const keptTraces = 4096

// traces are the claims that had a name, as far as this process was told. Somebody can
// delete a claim in the background: it is gone at once, its pod runs for as long as it
// may, and nothing of that pod says what its claim was called.
type traces struct {
	mu sync.Mutex
	// left says of each claim of a name whether anything of it may be left.
	left  map[string]map[types.UID]bool
	order []string // of names, those last heard of at the end
}

func newTraces() *traces { return &traces{left: map[string]map[types.UID]bool{}} }

// note remembers a claim, unless nothing is left of it already.
func (t *traces) note(name string, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left[name] == nil {
		t.left[name] = map[types.UID]bool{}
	} else {
		t.order = slices.DeleteFunc(t.order, func(n string) bool { return n == name })
	}
	if t.order = append(t.order, name); len(t.order) > keptTraces {
		delete(t.left, t.order[0])
		t.order = slices.Delete(t.order, 0, 1)
	}
	if _, known := t.left[name][uid]; !known {
		t.left[name][uid] = true
	}
}

// end takes note that nothing is left of a claim.
func (t *traces) end(name string, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of := t.left[name]; of != nil {
		of[uid] = false
	}
}

// of gives the claims of a name of which something may be left. known is false for a name
// that this process was told nothing of.
func (t *traces) of(name string) (uids []types.UID, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, left := range t.left[name] {
		if left {
			uids = append(uids, uid)
		}
	}
	return uids, t.left[name] != nil
}
