package facadeclient

import (
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
		if err != nil || got != uint64(revision)+1 {
			t.Fatalf("got %d, %v", got, err)
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
		if err != nil || got != 1 {
			t.Errorf("got %d, %v", got, err)
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
