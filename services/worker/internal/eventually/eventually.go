// Package eventually waits in tests for what happens in another process, or in
// goroutines that nothing tells about.
package eventually

import (
	"context"
	"testing"
	"time"
)

const (
	// bound is far beyond what anything takes on a machine that is busy.
	bound = time.Minute
	// between two looks.
	pause = 5 * time.Millisecond
)

// True waits until a condition holds, and fails the test where it never does. what
// is said then.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
