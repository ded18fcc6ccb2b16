package memorystoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"cofferdam.dev/services/statefacade/internal/memory"
)

func absent(t test) { t.want(t.content("ns"), "absent") }

func roundTrip(t test) {
	for n, text := range []string{"first", "second\x01é"} {
		want := change(fmt.Sprint("id", n), "ns", "key", text, uint64(n))
		want.Record.Retention, want.Record.ExpiresAt = "year", now.AddDate(1, 0, n)
		want.Record.Redactions, want.Record.Origin.ApprovedCall = n, fmt.Sprint("call", n)
		if got := t.make(want); got != uint64(n+1) {
			t.Errorf("revision is %d, want %d", got, n+1)
		}
		want.Record.Revision, want.Record.Origin.Previous = uint64(n+1), uint64(n)
		got, err := t.Get(t.Context(), "ns", "key", now)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Content, want.Record.Content) {
			t.Errorf("content is %q", got.Content)
		}
		got.Content, want.Record.Content = nil, nil
		t.want(fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want.Record))
	}
}

func mustNotExist(t test) {
	t.make(change("1", "ns", "key", "first", 0))
	t.refused(change("2", "ns", "key", "second", 0), memory.ErrRevision)
	t.want(t.content("ns"), "1 first")
}

func mustStand(t test) {
	t.make(change("1", "ns", "key", "first", 0))
	t.make(change("2", "ns", "key", "second", 1))
	for _, expected := range []uint64{1, 3} {
		t.refused(change(fmt.Sprint("other", expected), "ns", "key", "third", expected), memory.ErrRevision)
	}
	t.want(t.content("ns"), "2 second")
}

func expectNothing(t test) {
	t.refused(change("1", "ns", "key", "first", 1), memory.ErrRevision)
	t.want(t.content("ns"), "absent")
}

// A change that was looked at as one of another kind is not made: what it needs
// may depend on the kind that it replaces.
func mustReplace(t test) {
	t.make(change("1", "ns", "key", "first", 0))
	for n, kind := range []memory.Kind{"", memory.KindProcedural} {
		c := change(fmt.Sprint("other", n), "ns", "key", "second", 1)
		c.Replaces = kind
		t.refused(c, memory.ErrRevision)
		d := deletion(fmt.Sprint("deletion", n), "ns", "key", 1)
		d.Replaces = kind
		t.refused(d, memory.ErrRevision)
	}
	t.want(t.content("ns"), "1 first")
}

// A change that was refused has made nothing, so its ID is not taken.
func refusedLeavesNothing(t test) {
	c := change("1", "ns", "key", "first", 1)
	t.refused(c, memory.ErrRevision)
	c.Expected, c.Replaces = 0, ""
	if got := t.make(c); got != 1 {
		t.Errorf("revision is %d", got)
	}
}

func namespaces(t test) {
	t.make(change("1", "ns-1", "key", "mine", 0))
	t.want(t.content("ns-2"), "absent")
	t.make(change("2", "ns-2", "key", "yours", 0))
	t.want(t.content("ns-1"), "1 mine")
	t.make(deletion("3", "ns-2", "key", 1))
	t.want(t.content("ns-1"), "1 mine")
}

func repeat(t test) {
	c := change("1", "ns", "key", "first", 0)
	for range 3 {
		if got := t.make(c); got != 1 {
			t.Errorf("revision is %d", got)
		}
	}
	t.want(t.content("ns"), "1 first")
	d := deletion("2", "ns", "key", 1)
	for range 3 {
		if got := t.make(d); got != 2 {
			t.Errorf("revision is %d", got)
		}
	}
}

func repeatLate(t test) {
	first := change("1", "ns", "key", "first", 0)
	t.make(first)
	t.make(change("2", "ns", "key", "second", 1))
	if got := t.make(first); got != 1 {
		t.Errorf("revision is %d", got)
	}
	t.want(t.content("ns"), "2 second")
	t.make(deletion("3", "ns", "key", 2))
	for n, c := range []memory.Change{first, change("2", "ns", "key", "second", 1)} {
		if got := t.make(c); got != uint64(n+1) {
			t.Errorf("revision is %d", got)
		}
	}
	t.want(t.content("ns"), "absent") // the repeats undid nothing
}

func bound(t test) {
	for n := range most {
		t.make(change(fmt.Sprint(n), "ns", fmt.Sprint("key", n), "text", 0))
	}
	t.refused(change("more", "ns", "one more", "text", 0), memory.ErrFull)
	t.make(change("existing", "ns", "key0", "text", 1))
	t.make(change("elsewhere", "other", "key", "text", 0))
	t.make(deletion("room", "ns", "key1", 1))
	t.make(change("there is room", "ns", "one more", "text", 0))
	t.refused(change("back", "ns", "key1", "text", 0), memory.ErrFull)
}

// Keys that were deleted are bounded as well.
func boundOfKeys(t test) {
	for n := range most * memory.KeysPerRecord {
		key := fmt.Sprint("key", n)
		t.make(change("put "+key, "ns", key, "text", 0))
		t.make(deletion("delete "+key, "ns", key, 1))
	}
	t.refused(change("more", "ns", "one more", "text", 0), memory.ErrFull)
	t.make(change("known", "ns", "key0", "text", 0))
}

func oneWins(t test) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	won := 0
	for n := range 16 {
		wg.Go(func() {
			_, err := t.Change(t.Context(), change(fmt.Sprint(n), "ns", "key", fmt.Sprint(n), 0), most)
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
				if r, err := t.Get(t.Context(), "ns", "key", now); err == nil {
					expected = r.Revision
				}
				_, err := t.Change(t.Context(), change(fmt.Sprintf("%d-%d-%d", w, n, expected), "ns", "key", "text", expected), most)
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
	t.want(t.content("ns"), fmt.Sprintf("%d text", writers*each))
	entries, err := t.Audit(t.Context(), "ns", "key")
	if err != nil || len(entries) != writers*each {
		t.Errorf("the audit has %d changes, %v", len(entries), err)
	}
}

func ended(t test) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := t.Change(ctx, change("1", "ns", "key", "text", 0), most); err == nil {
		t.Error("a write with an ended context was acknowledged")
	}
	t.want(t.content("ns"), "absent")
}
