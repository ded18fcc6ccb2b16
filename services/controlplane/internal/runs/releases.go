package runs

import (
	"context"
	"sync"
)

// maxReleases is how many claims are released at once; others wait for a later
// sweep.
const maxReleases = 16

// releases ends claims beside everything else: a provider that hangs holds up
// neither the reconciler nor a start.
type releases struct {
	life context.Context //nolint:containedctx // the life of the service
	wg   sync.WaitGroup

	mu      sync.Mutex
	running map[string]bool
}

func newReleases(life context.Context) *releases {
	return &releases{life: life, running: map[string]bool{}}
}

// begin runs do for a claim unless that is under way.
func (r *releases) begin(claim string, do func(context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[claim] || len(r.running) >= maxReleases || r.life.Err() != nil {
		return
	}
	r.running[claim] = true
	r.wg.Go(func() {
		do(r.life)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, claim)
	})
}

// wait waits for what is under way. begin does nothing once life has ended.
func (r *releases) wait() { r.wg.Wait() }
