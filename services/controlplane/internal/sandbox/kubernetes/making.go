package kubernetes

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// making are the claims that calls of this replica are about, in the order in which
// they asked for room. A claim that was just created is in no cache for a moment:
// without them, calls at the same moment would all find the last place.
type making struct {
	mu    sync.Mutex
	calls []*call
	// unseen are the claims of such calls that the cache has not shown yet.
	unseen map[types.UID]call
}

type call struct{ name, pool string }

// enter puts a call behind those that are there. It keeps its place until leave.
func (m *making) enter(name, pool string) *call {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &call{name: name, pool: pool}
	m.calls = append(m.calls, c)
	return c
}

func (m *making) leave(c *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = slices.DeleteFunc(m.calls, func(o *call) bool { return o == c })
}

// before are the names of the claims of a pool that calls before this one are about,
// or of all calls.
func (m *making) before(c *call, pool string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, o := range m.calls {
		if o == c {
			break
		}
		if o.pool == pool {
			names = append(names, o.name)
		}
	}
	return names
}

// count takes note of a claim that the cache will show.
func (m *making) count(claim *extensions.SandboxClaim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unseen == nil {
		m.unseen = map[types.UID]call{}
	}
	m.unseen[claim.UID] = call{claim.Name, claim.Spec.WarmPoolRef.Name}
}

// seen forgets a claim that the cache has shown, or that is gone.
func (m *making) seen(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unseen, uid)
}

// notSeen are the claims of a pool that the cache has not shown yet.
func (m *making) notSeen(pool string) map[types.UID]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[types.UID]string{}
	for uid, c := range m.unseen {
		if c.pool == pool {
			names[uid] = c.name
		}
	}
	return names
}
