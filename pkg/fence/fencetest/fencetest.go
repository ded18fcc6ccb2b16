// Package fencetest has committed state for tests: a reader that says what the
// test wants, and grants that a real guard made from it.
package fencetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/fence"
)

// Reader is a fence.Reader of states that a test sets. It is safe for
// concurrent use; the zero value knows no binding.
type Reader struct {
	mu     sync.Mutex
	states map[string]fence.Committed
	err    error
}

// NewReader knows the given states.
func NewReader(states ...fence.Committed) *Reader {
	r := &Reader{}
	for _, s := range states {
		r.Set(s)
	}
	return r
}

// Set makes c the committed state of its binding.
func (r *Reader) Set(c fence.Committed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states == nil {
		r.states = make(map[string]fence.Committed)
	}
	r.states[c.BindingID] = c
}

// Fail makes every read fail with err, until it is called with nil.
func (r *Reader) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Committed implements fence.Reader.
func (r *Reader) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	if err := ctx.Err(); err != nil {
		return fence.Committed{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return fence.Committed{}, r.err
	}
	c, ok := r.states[bindingID]
	if !ok {
		return fence.Committed{}, fence.ErrUnknownBinding
	}
	return c, nil
}

// State is a committed state with an active run that ends an hour from now:
// epoch 1, generation 1.
func State() fence.Committed {
	return fence.Committed{
		BindingID:   "hs_AAAAAAAAAAAAAAAAAAAAAA",
		Epoch:       1,
		Generation:  1,
		RunID:       "run_1",
		RunDeadline: time.Now().Add(time.Hour),
		Owner:       "replica-1",
		Instance:    "instance-1",
	}
}

// Envelope speaks for c, under the given idempotency key.
func Envelope(c fence.Committed, key string) fence.Envelope {
	return fence.Envelope{
		BindingID:      c.BindingID,
		Epoch:          c.Epoch,
		Generation:     c.Generation,
		RunID:          c.RunID,
		RequestID:      "req-" + key,
		IdempotencyKey: key,
		Deadline:       c.RunDeadline,
	}
}

// Grant is what a real guard makes of an envelope that matches c.
func Grant(tb testing.TB, c fence.Committed, key string) fence.Grant {
	tb.Helper()
	g, err := fence.NewGuard(NewReader(c), time.Now).Admit(tb.Context(), Envelope(c, key))
	if err != nil {
		tb.Fatalf("fencetest: %v", err)
	}
	return g
}
