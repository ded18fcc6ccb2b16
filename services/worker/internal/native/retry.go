package native

import (
	"context"
	"math/rand/v2"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/native/model"
)

const (
	firstWait = time.Second
	maxWait   = 30 * time.Second
)

// waitToRetry waits before the nth repeat of a throttled call: as long as the
// provider wants, else longer each time. It does not begin to wait for what the
// run's deadline leaves no time for.
func (l *level) waitToRetry(ctx context.Context, n int, f *model.FailureError) (bool, error) {
	wait := f.Fault.RetryAfter()
	if wait == 0 {
		wait = min(firstWait<<(n-1), maxWait)
	}
	// Runs that were throttled together do not come back together.
	wait += rand.N(wait/4 + 1) //nolint:gosec // jitter
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false, nil
	}
	err := l.tell(ctx, event.Warning{Code: "model_retry", Message: "The model is busy. The call is made again after a while."})
	if err != nil {
		return false, err
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-ctx.Done():
		return false, fault.From(ctx.Err(), "native.retry")
	}
}
