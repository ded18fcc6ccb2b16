package catalogue

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"cofferdam.dev/services/toolbroker/internal/call"
)

// Bounds of limits.
const (
	defaultConcurrency = 32
	maxConcurrency     = 1024
	maxPerSecond       = 10_000
)

// Limits bound the calls of all tools of a server, of all runs together. A call
// waits for its turn for as long as it may still begin, and is then refused.
type Limits struct {
	// Concurrency is how many calls may be under way; 32 by default.
	Concurrency int `json:"concurrency,omitempty"`
	// PerSecond is how many may begin in a second, in the long run; 0 is no bound.
	PerSecond float64 `json:"per_second,omitempty"`
	// Burst is how many may begin at once after a pause; 1 by default.
	Burst int `json:"burst,omitempty"`
}

func (l *Limits) validate(say say) {
	if l == nil {
		return
	}
	if l.Concurrency < 0 || l.Concurrency > maxConcurrency {
		say("limits.concurrency: 1 to %d", maxConcurrency)
	}
	if l.PerSecond < 0 || l.PerSecond > maxPerSecond || l.Burst < 0 || l.Burst > maxPerSecond || l.Burst > 0 && l.PerSecond == 0 {
		say("limits.per_second, limits.burst: up to %d, and no burst without a rate", maxPerSecond)
	}
}

// turns gives calls their turn.
type turns struct {
	slots chan struct{}
	rate  *rate.Limiter
}

func newTurns(l *Limits) *turns {
	n, perSecond, burst := defaultConcurrency, rate.Inf, 1
	if l != nil {
		if l.Concurrency > 0 {
			n = l.Concurrency
		}
		if l.PerSecond > 0 {
			perSecond = rate.Limit(l.PerSecond)
		}
		burst = max(burst, l.Burst)
	}
	return &turns{make(chan struct{}, n), rate.NewLimiter(perSecond, burst)}
}

// take waits until by for a turn, which done gives back.
func (t *turns) take(ctx context.Context, by time.Time) (done func(), err error) {
	if !by.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w: too many calls are under way", call.ErrNotSent, call.ErrBusy)
	}
	if err := t.rate.Wait(ctx); err != nil {
		<-t.slots
		return nil, fmt.Errorf("%w: %w: too many calls in a short time", call.ErrNotSent, call.ErrBusy)
	}
	return func() { <-t.slots }, nil
}
