package native

import (
	"context"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/native/model"
)

// tally is what all answers of a run have used together.
type tally struct {
	mu      sync.Mutex
	answers int
	sum     model.Usage
}

func (t *tally) add(u model.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers++
	if t.answers == 1 {
		t.sum = u
		return
	}
	t.sum = t.sum.Plus(u)
}

func (t *tally) total() model.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}

// tellUsage tells what the run has used so far, if anything is known.
func (r *run) tellUsage(ctx context.Context, final bool) error {
	u := r.used.total()
	if u == (model.Usage{}) {
		return nil
	}
	return r.emit.Emit(ctx, event.Draft{Data: event.UsageUpdated{
		InputTokens: u.Input, OutputTokens: u.Output, CachedInputTokens: u.Cached, Final: final,
	}})
}
