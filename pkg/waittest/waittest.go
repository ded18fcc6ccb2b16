// Package waittest waits in tests for what other goroutines and processes do, where
// nothing tells that it was done and testing/synctest does not reach.
package waittest

import (
	"testing"
	"time"
)

const (
	// patience bounds a wait for something that must come. It measures nothing: a test
	// that needs it all has failed.
	patience = 2 * time.Minute
	look     = 2 * time.Millisecond
)

// Until returns when ok holds, and fails the test where it does not, which what says.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline, tick := time.After(patience), time.NewTicker(look)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("did not happen: %s", what)
		}
	}
}
