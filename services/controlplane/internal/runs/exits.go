package runs

import (
	"context"
	"sync"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// keptExits is how many exits are remembered for the drivers that will ask.
const keptExits = 4096

// exits remembers why sandboxes went away: the provider tells it once, and a
// driver asks when its worker's stream has broken, which may be sooner or later.
type exits struct {
	mu      sync.Mutex
	limits  map[string]sandbox.Limit // by instance uid
	order   []string
	changed chan struct{}
}

func newExits() *exits {
	return &exits{limits: map[string]sandbox.Limit{}, changed: make(chan struct{})}
}

func (e *exits) note(exit sandbox.Exit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, twice := e.limits[exit.UID]; !twice {
		e.order = append(e.order, exit.UID)
	}
	e.limits[exit.UID] = exit.Limit
	if len(e.order) > keptExits {
		delete(e.limits, e.order[0])
		e.order = e.order[1:]
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// code is how a run ends whose sandbox is gone: sandbox_limit where a limit ended
// it, and sandbox_evicted otherwise. It waits for the provider's word until ctx
// ends.
func (e *exits) code(ctx context.Context, instanceUID string) fault.Code {
	for {
		e.mu.Lock()
		limit, known := e.limits[instanceUID]
		changed := e.changed
		e.mu.Unlock()
		switch {
		case known && limit != "":
			return fault.SandboxLimit
		case known:
			return fault.SandboxEvicted
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fault.SandboxEvicted
		}
	}
}
