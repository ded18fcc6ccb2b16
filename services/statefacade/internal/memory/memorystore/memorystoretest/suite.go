// Package memorystoretest has the suite that every back end of the memory store
// must pass.
package memorystoretest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
)

const most = 4

// test is one case on one store.
type test struct {
	*testing.T
	memory.Store
}

// Run runs the suite. open gives an empty store for each case.
func Run(t *testing.T, open func(t *testing.T) memory.Store) {
	t.Helper()
	for name, f := range map[string]func(test){
		"absent":                                       absent,
		"what was put comes back":                      roundTrip,
		"new record must not exist":                    mustNotExist,
		"expected revision must stand":                 mustStand,
		"expected revision of nothing":                 expectNothing,
		"refused change leaves nothing":                refusedLeavesNothing,
		"namespaces do not meet":                       namespaces,
		"repeat gives the same revision":               repeat,
		"repeat after later changes":                   repeatLate,
		"bound of a namespace":                         bound,
		"one of many wins a missing key (beanie 1350)": oneWins,
		"no lost update":                               noLostUpdate,
		"a context that has ended":                     ended,
	} {
		t.Run(name, func(t *testing.T) { f(test{t, open(t)}) })
	}
}

func change(id, namespace, key, content string, expected uint64) memory.Change {
	return memory.Change{ID: id, Namespace: namespace, Expected: expected, Record: memory.Record{
		Key: key, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte(content),
		SHA256: sha256.Sum256([]byte(content)), UpdatedAt: time.Unix(1700000000, 123456000).UTC(),
		Origin: memory.Origin{BindingID: "hs_1", Epoch: 1, Generation: 2, RunID: "run", Writer: "spiffe://test/sandbox/1"},
	}}
}

func (t test) put(c memory.Change) uint64 {
	t.Helper()
	revision, err := t.Put(t.Context(), c, most)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (t test) refused(c memory.Change, want error) {
	t.Helper()
	if revision, err := t.Put(t.Context(), c, most); !errors.Is(err, want) {
		t.Errorf("got revision %d, %v, want %v", revision, err, want)
	}
}

func (t test) content(namespace string) string {
	t.Helper()
	r, err := t.Get(t.Context(), namespace, "key")
	if errors.Is(err, memory.ErrNotFound) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", r.Revision, r.Content)
}

func absent(t test) {
	if got := t.content("ns"); got != "absent" {
		t.Errorf("got %q", got)
	}
}

func roundTrip(t test) {
	for n, text := range []string{"first", "second\x01é"} {
		want := change(fmt.Sprint("id", n), "ns", "key", text, uint64(n))
		if got := t.put(want); got != uint64(n+1) {
			t.Errorf("revision is %d, want %d", got, n+1)
		}
		want.Record.Revision, want.Record.Origin.Previous = uint64(n+1), uint64(n)
		got, err := t.Get(t.Context(), "ns", "key")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Content, want.Record.Content) {
			t.Errorf("content is %q", got.Content)
		}
		got.Content, want.Record.Content = nil, nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want.Record) {
			t.Errorf("got  %+v\nwant %+v", got, want.Record)
		}
	}
}

func mustNotExist(t test) {
	t.put(change("1", "ns", "key", "first", 0))
	t.refused(change("2", "ns", "key", "second", 0), memory.ErrRevision)
	if got := t.content("ns"); got != "1 first" {
		t.Errorf("got %q", got)
	}
}

func mustStand(t test) {
	t.put(change("1", "ns", "key", "first", 0))
	t.put(change("2", "ns", "key", "second", 1))
	for _, expected := range []uint64{1, 3} {
		t.refused(change(fmt.Sprint("other", expected), "ns", "key", "third", expected), memory.ErrRevision)
	}
	if got := t.content("ns"); got != "2 second" {
		t.Errorf("got %q", got)
	}
}

func expectNothing(t test) {
	t.refused(change("1", "ns", "key", "first", 1), memory.ErrRevision)
	if got := t.content("ns"); got != "absent" {
		t.Errorf("got %q", got)
	}
}

// A change that was refused has made nothing, so its ID is not taken.
func refusedLeavesNothing(t test) {
	c := change("1", "ns", "key", "first", 1)
	t.refused(c, memory.ErrRevision)
	c.Expected = 0
	if got := t.put(c); got != 1 {
		t.Errorf("revision is %d", got)
	}
}

func namespaces(t test) {
	t.put(change("1", "ns-1", "key", "mine", 0))
	if got := t.content("ns-2"); got != "absent" {
		t.Errorf("got %q", got)
	}
	t.put(change("2", "ns-2", "key", "yours", 0))
	if got := t.content("ns-1"); got != "1 mine" {
		t.Errorf("got %q", got)
	}
}

func repeat(t test) {
	c := change("1", "ns", "key", "first", 0)
	for range 3 {
		if got := t.put(c); got != 1 {
			t.Errorf("revision is %d", got)
		}
	}
	if got := t.content("ns"); got != "1 first" {
		t.Errorf("got %q", got)
	}
}

func repeatLate(t test) {
	first := change("1", "ns", "key", "first", 0)
	t.put(first)
	t.put(change("2", "ns", "key", "second", 1))
	if got := t.put(first); got != 1 {
		t.Errorf("revision is %d", got)
	}
	if got := t.content("ns"); got != "2 second" {
		t.Errorf("the repeat undid a later change: %q", got)
	}
}

func bound(t test) {
	for n := range most {
		t.put(change(fmt.Sprint(n), "ns", fmt.Sprint("key", n), "text", 0))
	}
	t.refused(change("more", "ns", "one more", "text", 0), memory.ErrFull)
	t.put(change("existing", "ns", "key0", "text", 1))
	t.put(change("elsewhere", "other", "key", "text", 0))
}

func oneWins(t test) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	won := 0
	for n := range 16 {
		wg.Go(func() {
			_, err := t.Put(t.Context(), change(fmt.Sprint(n), "ns", "key", fmt.Sprint(n), 0), most)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case !errors.Is(err, memory.ErrRevision):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d writers made revision 1", won)
	}
}

// noLostUpdate: every acknowledged change is one revision.
func noLostUpdate(t test) {
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; n < each; {
				var expected uint64
				if r, err := t.Get(t.Context(), "ns", "key"); err == nil {
					expected = r.Revision
				}
				_, err := t.Put(t.Context(), change(fmt.Sprintf("%d-%d-%d", w, n, expected), "ns", "key", "text", expected), most)
				switch {
				case err == nil:
					n++
				case !errors.Is(err, memory.ErrRevision):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := t.content("ns"); got != fmt.Sprintf("%d text", writers*each) {
		t.Errorf("got %q after %d changes", got, writers*each)
	}
}

func ended(t test) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := t.Put(ctx, change("1", "ns", "key", "text", 0), most); err == nil {
		t.Error("a write with an ended context was acknowledged")
	}
	if got := t.content("ns"); got != "absent" {
		t.Errorf("got %q", got)
	}
}
