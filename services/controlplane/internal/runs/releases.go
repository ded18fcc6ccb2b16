package runs

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// maxReleases is how many claims are released at once.
	maxReleases = 16
	// maxRetries is how many of those may have failed before: the claims of a node that
	// is lost, however many, leave half of the places to all others.
	maxRetries = maxReleases / 2

	// A claim that could not be released rests before it waits for a place again.
	firstRest = time.Second
	longRest  = time.Minute
	// unnamedFor is after which time a claim is forgotten that rests and that nobody
	// wants to have released any more.
	unnamedFor = 10 * time.Minute
)

// releases ends claims beside everything else: a provider that hangs holds up
// neither the reconciler nor a start, and a claim that hangs no other one. Whoever
// wants a claim to be released says so again and again, until it is.
type releases struct {
	life context.Context //nolint:containedctx // the life of the service
	wg   sync.WaitGroup

	mu     sync.Mutex
	claims map[string]*release
	// first and again are the claims that wait for a place, those that did not fail yet
	// and those that did, in the order in which they came.
	first, again []*release
	// running and retrying are how many places are taken, and by those that did fail.
	running, retrying int
	forgot            time.Time
}

// release of one claim.
type release struct {
	claim string
	do    func(context.Context) error
	// busy says that it waits for a place or has one; otherwise it rests until then.
	busy     bool
	until    time.Time
	named    time.Time
	failures int
}

func newReleases(life context.Context) *releases {
	return &releases{life: life, claims: map[string]*release{}, forgot: time.Now()}
}

// begin runs do for a claim, once there is a place for it, unless that is under way or
// has failed a short while ago. do returns an error where the claim could not be
// released.
func (r *releases) begin(claim string, do func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil {
		return
	}
	now := time.Now()
	r.forget(now)
	c := r.claims[claim]
	if c == nil {
		c = &release{claim: claim}
		r.claims[claim] = c
	}
	c.named, c.do = now, do
	switch {
	case c.busy || now.Before(c.until):
	case c.failures == 0:
		c.busy, r.first = true, append(r.first, c)
	default:
		c.busy, r.again = true, append(r.again, c)
	}
	r.serve()
}

// serve gives the places that are free.
func (r *releases) serve() {
	for r.running < maxReleases && r.life.Err() == nil {
		from := &r.first
		if len(r.again) > 0 && r.retrying < maxRetries {
			from = &r.again
		}
		if len(*from) == 0 {
			return
		}
		c := (*from)[0]
		(*from)[0], *from = nil, (*from)[1:]
		r.run(c)
	}
}

func (r *releases) run(c *release) {
	retry, do := 0, c.do
	if c.failures > 0 {
		retry = 1
	}
	r.running, r.retrying = r.running+1, r.retrying+retry
	r.wg.Go(func() {
		err := do(r.life)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running, r.retrying = r.running-1, r.retrying-retry
		if err == nil {
			delete(r.claims, c.claim)
		} else {
			c.busy, c.until = false, time.Now().Add(rest(c.failures))
			c.failures++
		}
		r.serve()
	})
}

// rest is how long a claim rests that has failed and did so before as often.
func rest(before int) time.Duration {
	d := longRest
	if before < 6 {
		d = min(d, firstRest<<before)
	}
	return d + rand.N(d/4) //nolint:gosec // nobody gains anything by guessing it
}

// forget keeps what is known from growing by claims that others have released.
func (r *releases) forget(now time.Time) {
	if now.Sub(r.forgot) < unnamedFor {
		return
	}
	r.forgot = now
	for claim, c := range r.claims {
		if !c.busy && now.Sub(c.named) > unnamedFor {
			delete(r.claims, claim)
		}
	}
}

// wait waits for what is under way. begin does nothing once life has ended.
func (r *releases) wait() {
	r.mu.Lock()   // a begin that was there before has its place, or never gets one
	r.mu.Unlock() //nolint:staticcheck // nothing is to be done while it is held
	r.wg.Wait()
}
