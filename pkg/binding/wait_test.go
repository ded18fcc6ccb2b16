package binding_test

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func head(last uint64) binding.HeadCommit {
	return binding.HeadCommit{Codec: "c", CodecVersion: 1, SnapshotRef: "s", SHA256: "h", IdempotencyDigest: "d", LastSequence: last}
}

func TestHeadWaitIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		deadline time.Duration
		want     fault.Code
		after    time.Duration
	}{
		{"own bound", time.Hour, fault.PersistenceFailed, 30 * time.Second},
		{"grant", 5 * time.Second, fault.DeadlineExceeded, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, _ := running(t, deliver)
				g, err := fence.NewGuard(w, time.Now).Admit(t.Context(), fence.Envelope{BindingID: id, Epoch: 1, Generation: 1, RunID: "run_1", Deadline: time.Now().Add(c.deadline)})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, _, err = w.CommitHead(t.Context(), g, head(0))
				wantFault(t, err, c.want)
				if d := time.Since(start); d < c.after || d > c.after+time.Second {
					t.Fatalf("gave up after %v, want %v", d, c.after)
				}
			})
		})
	}
}

// TestStoreIsNotPestered counts what a write costs a store that does not answer.
func TestStoreIsNotPestered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		w, g := running(t, func(string) bindingtest.Fate {
			n++
			return bindingtest.LoseRequest
		})
		start := time.Now()
		wantFault(t, w.Beat(t.Context(), g, owner), fault.DependencyUnavailable)
		if d := time.Since(start); n != 4 || d < 100*time.Millisecond || d > time.Second {
			t.Fatalf("%d calls in %v", n, d)
		}
	})
}

func TestPageBounds(t *testing.T) {
	t.Parallel()
	w, g := running(t, deliver)
	next := uint64(0)
	add := func(n, size int) {
		t.Helper()
		b := binding.Batch{Nonce: rand.Text(), First: next}
		for range n {
			b.Events = append(b.Events, json.RawMessage(`"`+strings.Repeat("x", size)+`"`))
		}
		h, err := w.Append(t.Context(), g, owner, b)
		if err != nil {
			t.Fatal(err)
		}
		next = h
	}
	for range 6 {
		add(1, 400<<10)
	}
	for range 3 {
		add(900, 10)
	}
	var seen uint64
	for {
		p, err := w.Events(t.Context(), id, "run_1", seen, 0)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, e := range p.Events {
			size += len(e)
		}
		if len(p.Events) > binding.MaxPage || size > 1<<20 || p.First != seen || p.Ended {
			t.Fatalf("page of %d events and %d bytes from %d, ended %v", len(p.Events), size, p.First, p.Ended)
		}
		if len(p.Events) == 0 {
			break
		}
		seen = p.Next
	}
	if seen != next {
		t.Fatalf("read %d of %d", seen, next)
	}
	p, err := w.Events(t.Context(), id, "run_1", next+100, 0)
	if err != nil || len(p.Events) != 0 || p.Next != next+100 || p.Ended {
		t.Fatalf("%+v, %v", p, err)
	}
}
