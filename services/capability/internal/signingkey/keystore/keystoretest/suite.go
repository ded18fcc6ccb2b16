// Package keystoretest has the suite that every back end of the document of
// signing keys passes.
package keystoretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"cofferdam.dev/services/capability/internal/signingkey"
)

// Run runs the suite. open opens another replica's connection to one store, which
// is new for each call of world.
func Run(t *testing.T, world func(t *testing.T) (open func(t *testing.T) signingkey.Store)) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, func(*testing.T) signingkey.Store){
		"nothing stands":                     nothing,
		"what was written comes back":        comesBack,
		"only the revision that stands":      conditional,
		"of many at once one writes":         oneWins,
		"a context that has ended":           ended,
		"a body is bytes, whatever it holds": anyBytes,
	} {
		t.Run(name, func(t *testing.T) { test(t, world(t)) })
	}
}

func nothing(t *testing.T, open func(*testing.T) signingkey.Store) {
	t.Helper()
	want(t, open(t), 0, "")
}

func comesBack(t *testing.T, open func(*testing.T) signingkey.Store) {
	t.Helper()
	a, b := open(t), open(t)
	for revision, body := range []string{"first", "second", "third"} {
		if done, err := a.ReplaceKeys(t.Context(), uint64(revision), []byte(body)); !done || err != nil {
			t.Fatalf("revision %d: %v, %v", revision, done, err)
		}
		want(t, a, uint64(revision)+1, body)
		want(t, b, uint64(revision)+1, body)
	}
}

func conditional(t *testing.T, open func(*testing.T) signingkey.Store) {
	t.Helper()
	a, b := open(t), open(t)
	refused := func(s signingkey.Store, expected uint64) {
		t.Helper()
		if done, err := s.ReplaceKeys(t.Context(), expected, []byte("late")); done || err != nil {
			t.Errorf("expected %d: %v, %v", expected, done, err)
		}
	}
	refused(a, 1)
	want(t, a, 0, "")
	for revision := range uint64(2) {
		if done, err := a.ReplaceKeys(t.Context(), revision, []byte("stands")); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	for _, expected := range []uint64{0, 1, 3, 1 << 40} {
		refused(b, expected)
	}
	want(t, b, 2, "stands")
}

func oneWins(t *testing.T, open func(*testing.T) signingkey.Store) {
	t.Helper()
	const replicas, writes = 8, 4
	stores := make([]signingkey.Store, replicas)
	for i := range stores {
		stores[i] = open(t)
	}
	for expected := range uint64(writes) {
		var won atomic.Int32
		var winner atomic.Value
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				body := fmt.Sprint("of replica ", i)
				done, err := s.ReplaceKeys(t.Context(), expected, []byte(body))
				if err != nil {
					t.Errorf("replica %d: %v", i, err)
				}
				if done {
					won.Add(1)
					winner.Store(body)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d writes of revision %d", won.Load(), expected)
		}
		want(t, stores[0], expected+1, winner.Load().(string)) //nolint:forcetypeassert // stored above
	}
}

func ended(t *testing.T, open func(*testing.T) signingkey.Store) {
	t.Helper()
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := s.ReplaceKeys(ctx, 0, []byte("late")); done || !errors.Is(err, context.Canceled) {
		t.Errorf("written: %v, %v", done, err)
	}
	if _, _, err := s.LoadKeys(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	want(t, s, 0, "")
}

func anyBytes(t *testing.T, open func(*testing.T) signingkey.Store) {
	t.Helper()
	s, body := open(t), make([]byte, 64<<10)
	for i := range body {
		body[i] = byte(i * 7)
	}
	if done, err := s.ReplaceKeys(t.Context(), 0, body); !done || err != nil {
		t.Fatal(done, err)
	}
	want(t, s, 1, string(body))
}

func want(t *testing.T, s signingkey.Store, revision uint64, body string) {
	t.Helper()
	r, b, err := s.LoadKeys(t.Context())
	if err != nil || r != revision || string(b) != body {
		t.Errorf("stands: revision %d, %d bytes, %v; want revision %d, %d bytes", r, len(b), err, revision, len(body))
	}
}
