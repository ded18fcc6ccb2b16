package facadeclient

import (
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/services/worker/internal/harness"
)

func note(content string, revision uint64) harness.MemoryRecord {
	return harness.MemoryRecord{Kind: kindSemantic, ContentType: "text/plain", Content: []byte(content), Revision: revision}
}

func TestMemory(t *testing.T) {
	c := newClient(t)
	_, err := c.Memory.Get(t.Context(), harness.MemoryUser, "k")
	wantCode(t, err, fault.NotFound)
	for revision, content := range []string{"one", "two"} {
		got, err := c.Memory.Put(t.Context(), content, harness.MemoryUser, "k", note(content, uint64(revision)))
		if err != nil || got.Revision != uint64(revision)+1 {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	r, err := c.Memory.Get(t.Context(), harness.MemoryUser, "k")
	if err != nil || string(r.Content) != "two" || r.Revision != 2 || r.Kind != kindSemantic || r.ContentType != "text/plain" {
		t.Errorf("got %+v, %v", r, err)
	}
	_, err = c.Memory.Put(t.Context(), "three", harness.MemoryUser, "k", note("three", 1))
	wantCode(t, err, fault.MemoryRevisionConflict)
	_, err = c.Memory.Put(t.Context(), "four", harness.MemoryUser, "k", note("four", 0))
	wantCode(t, err, fault.MemoryRevisionConflict)
	_, err = c.Memory.Get(t.Context(), harness.MemoryAgent, "k") // another scope is another memory
	wantCode(t, err, fault.NotFound)
}

// Every scope and kind that the contract has goes through, and none besides.
func TestMemoryScopesAndKinds(t *testing.T) {
	c := newClient(t)
	for _, scope := range []harness.MemoryScope{harness.MemoryUser, harness.MemoryAgent, harness.MemoryOrganization} {
		for _, kind := range []string{kindSemantic, kindEpisodicReference, kindProcedural} {
			key := string(scope) + "-" + kind
			r := note("x", 0)
			r.Kind = kind
			_, err := c.Memory.Put(t.Context(), key, scope, key, r)
			must(t, err)
			got, err := c.Memory.Get(t.Context(), scope, key)
			if err != nil || got.Kind != kind {
				t.Errorf("%s: %+v, %v", key, got, err)
			}
		}
	}
	if kindName(memoryv1.Kind_KIND_UNSPECIFIED) != "" {
		t.Error("no kind has a name")
	}
	odd := note("x", 0)
	odd.Kind = "gossip"
	for name, do := range map[string]func() error{
		"scope of a get": func() error { _, err := c.Memory.Get(t.Context(), "everybody", "k"); return err },
		"scope of a put": func() error { _, err := c.Memory.Put(t.Context(), "c", "everybody", "k", note("x", 0)); return err },
		"kind":           func() error { _, err := c.Memory.Put(t.Context(), "c", harness.MemoryUser, "k", odd); return err },
		"key":            func() error { _, err := c.Memory.Get(t.Context(), harness.MemoryUser, "../k"); return err },
		"nothing": func() error {
			_, err := c.Memory.Put(t.Context(), "c", harness.MemoryUser, "k", note("", 0))
			return err
		},
	} {
		if err := do(); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := c.Memory.Put(t.Context(), "c", harness.MemoryUser, "k", note(strings.Repeat("x", maxMemoryBytes+1), 0))
	wantCode(t, err, fault.RequestTooLarge)
}

// A put whose answers are lost happens once, for its call.
func TestPutHappensOnce(t *testing.T) {
	c := newClient(t)
	twice := first(2)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return twice(p, memoryv1connect.MemoryServicePutProcedure) }
	})
	for range 2 {
		got, err := c.Memory.Put(t.Context(), "call-1", harness.MemoryUser, "k", note("one", 0))
		if err != nil || got.Revision != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if len(c.acted) != 1 {
		t.Errorf("%q", c.acted)
	}
	_, err := c.Memory.Put(t.Context(), "call-1", harness.MemoryUser, "k", note("two", 0))
	wantCode(t, err, fault.IdempotencyConflict)
	// The broker's call of the same id is another effect.
	_, err = c.Tools.Call(t.Context(), call)
	must(t, err)
}

func TestPutFails(t *testing.T) {
	for name, x := range map[string]struct {
		lose         bool
		refuse, want fault.Code
		sent         int
	}{
		"every answer is lost":     {lose: true, want: fault.ToolOutcomeUnknown, sent: attempts},
		"the ledger does not know": {refuse: fault.ToolOutcomeUnknown, want: fault.ToolOutcomeUnknown, sent: attempts},
		"the scope is denied":      {refuse: fault.MemoryScopeDenied, want: fault.MemoryScopeDenied, sent: 1},
		"the content is refused":   {refuse: fault.MemoryRejected, want: fault.MemoryRejected, sent: 1},
		"the run is over":          {refuse: fault.Cancelled, want: fault.Cancelled, sent: attempts},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.arm(func(b *brokers) {
				b.lose = func(string) bool { return x.lose }
				b.refuse = func(string) error {
					if x.refuse == "" {
						return nil
					}
					return fault.New(x.refuse, "test")
				}
			})
			_, err := c.Memory.Put(t.Context(), "c", harness.MemoryUser, "k", note("one", 0))
			wantCode(t, err, x.want)
			if n := c.count("Put"); n != x.sent {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// A lost answer to a get is asked for again, and a damaged record is refused.
func TestGet(t *testing.T) {
	c := newClient(t)
	_, err := c.Memory.Put(t.Context(), "c", harness.MemoryUser, "k", note("one", 0))
	must(t, err)
	once := first(1)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return once(p, memoryv1connect.MemoryServiceGetProcedure) }
	})
	r, err := c.Memory.Get(t.Context(), harness.MemoryUser, "k")
	if err != nil || string(r.Content) != "one" {
		t.Errorf("got %+v, %v", r, err)
	}
	c.arm(func(b *brokers) { b.damage = func(r *memoryv1.Record) { r.Content = []byte("other") } })
	_, err = c.Memory.Get(t.Context(), harness.MemoryUser, "k")
	wantCode(t, err, fault.PersistenceFailed)
}

func TestSearch(t *testing.T) {
	c := newClient(t)
	for _, key := range []string{"a", "b"} {
		_, err := c.Memory.Put(t.Context(), key, harness.MemoryUser, key, note("word in "+key, 0))
		must(t, err)
	}
	once := first(1)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return once(p, memoryv1connect.MemoryServiceSearchProcedure) }
	})
	found, err := c.Memory.Search(t.Context(), harness.MemoryUser, harness.MemoryQuery{Text: "in a", Limit: 10})
	if err != nil || found.Rank != harness.MemoryByWords || len(found.Matches) != 1 || found.Matches[0] != (harness.MemoryMatch{Key: "a", Kind: kindSemantic, Revision: 1, Excerpt: "word in a"}) {
		t.Errorf("got %+v, %v", found, err)
	}
	if found, err = c.Memory.Search(t.Context(), harness.MemoryUser, harness.MemoryQuery{Text: "word", Limit: 1, Rank: harness.MemoryByMeaning}); err != nil || found.Rank != harness.MemoryByMeaning || len(found.Matches) != 1 {
		t.Errorf("got %+v, %v", found, err)
	}
	for _, limit := range []int{-1, 51} {
		_, err = c.Memory.Search(t.Context(), harness.MemoryUser, harness.MemoryQuery{Text: "word", Limit: limit})
		wantCode(t, err, fault.InvalidRequest)
	}
}

// Sources go and come; what was cut out is told.
func TestPutOfSources(t *testing.T) {
	c := newClient(t)
	r := note("a secret of two", 0)
	r.Sources = []harness.MemorySource{{Key: "a", Revision: 3}, {Key: "b", Revision: 1}}
	written, err := c.Memory.Put(t.Context(), "call", harness.MemoryUser, "k", r)
	if err != nil || written != (harness.MemoryWritten{Revision: 1, Redactions: 1}) {
		t.Errorf("got %+v, %v", written, err)
	}
	got, err := c.Memory.Get(t.Context(), harness.MemoryUser, "k")
	if err != nil || !slices.Equal(got.Sources, r.Sources) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A deletion whose answers are lost happens once, for its call.
func TestDeleteHappensOnce(t *testing.T) {
	c := newClient(t)
	_, err := c.Memory.Put(t.Context(), "call-1", harness.MemoryUser, "k", note("one", 0))
	must(t, err)
	wantCode(t, c.Memory.Delete(t.Context(), "call-2", harness.MemoryUser, "k", 2), fault.MemoryRevisionConflict)
	twice := first(2)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return twice(p, memoryv1connect.MemoryServiceDeleteProcedure) }
	})
	for range 2 {
		must(t, c.Memory.Delete(t.Context(), "call-3", harness.MemoryUser, "k", 1))
	}
	if len(c.acted) != 2 {
		t.Errorf("%q", c.acted)
	}
	_, err = c.Memory.Get(t.Context(), harness.MemoryUser, "k")
	wantCode(t, err, fault.NotFound)
	c.arm(func(b *brokers) { b.lose = func(string) bool { return true } })
	wantCode(t, c.Memory.Delete(t.Context(), "call-4", harness.MemoryUser, "k", 1), fault.ToolOutcomeUnknown)
}
