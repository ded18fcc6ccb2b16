package call

import (
	"context"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
)

// Within is the call that a tool acts for. A tool of a server has no use for it; it
// is for what Cofferdam does itself.
type Within struct {
	// Envelope of the run, whose idempotency key is that of the call.
	Envelope fence.Envelope
	// Tell is told what happens meanwhile in a namespace of the call; nil where nobody
	// listens. It waits for a listener that is slow, and not for one that is gone.
	Tell func(event.Event)
}

type withinKey struct{}

// WithinOf gives the call of the context that a Tool gets.
func WithinOf(ctx context.Context) (Within, bool) {
	w, ok := ctx.Value(withinKey{}).(Within)
	return w, ok
}

// NewWithin is the context of a call.
func NewWithin(ctx context.Context, w Within) context.Context {
	return context.WithValue(ctx, withinKey{}, w)
}
