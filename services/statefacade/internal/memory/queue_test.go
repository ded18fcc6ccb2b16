package memory_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/secrets"
)

// slowStore makes one change at a time, each of which takes a while.
type slowStore struct {
	memory.Store
	writer  chan struct{}
	takes   time.Duration
	changes int
}

func (s *slowStore) Change(ctx context.Context, _ memory.Change, _ int) (uint64, error) {
	select {
	case s.writer <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-s.writer }()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	s.changes++
	return 1, nil
}

// asked is a service on the store, and a caller of one run for each key.
func asked(t *testing.T, store memory.Store) (*memory.Service, func(key string, limit time.Duration) memory.Caller) {
	t.Helper()
	const id = "hs_memory"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	records := bindingtest.NewMemory()
	_, _, err := records.Insert(t.Context(), binding.Record{ID: id, Epoch: 1, Identity: binding.Identity{Environment: "test", Subject: "subject", AgentID: "agent"}})
	must(err)
	w := binding.NewWriter(records, time.Now)
	_, err = w.Replace(t.Context(), id, 1, 0, func(g uint32) string { return binding.ClaimName(id, g) }, "")
	must(err)
	_, err = w.Start(t.Context(), binding.StartParams{BindingID: id, RunID: "run", Epoch: 1, Deadline: time.Now().Add(time.Hour), Owner: "replica/1"})
	must(err)
	scanner, err := secrets.New()
	must(err)
	s := memory.New(memory.Config{
		Records: records, Effects: binding.NewEffects(w), Store: store, Secrets: scanner, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	return s, func(key string, limit time.Duration) memory.Caller {
		g, err := fence.NewGuard(w, time.Now).Admit(t.Context(), fence.Envelope{
			BindingID: id, Epoch: 1, Generation: 1, RunID: "run", RequestID: key, IdempotencyKey: key, Deadline: time.Now().Add(limit),
		})
		must(err)
		return memory.Caller{Grant: g, ID: spiffeid.RequireFromString("spiffe://test/sandbox/instance"), Scopes: []string{string(memory.ScopeUser)}}
	}
}

func put(key string) memory.Put {
	return memory.Put{Scope: memory.ScopeUser, Key: key, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte("content")}
}

// However many changes come at once, a store that is slow makes each of them, once:
// they wait before they are admitted, and not in the two seconds after that, in which
// none would ever be first where all begin again.
func TestChangesWaitBeforeTheirWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 60
		store := &slowStore{writer: make(chan struct{}, 1), takes: binding.DispatchWindow / 5}
		s, caller := asked(t, store)
		var wg sync.WaitGroup
		for n := range many {
			wg.Go(func() {
				key := fmt.Sprint("key-", n)
				if _, err := s.Put(t.Context(), caller(key, time.Minute), put(key)); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		wg.Wait()
		if store.changes != many {
			t.Errorf("%d changes, want %d", store.changes, many)
		}
	})
}

// One that waits until its time is over was not admitted, and holds up nobody.
func TestAChangeThatWaitsInVainIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{writer: make(chan struct{}, 1), takes: 1500 * time.Millisecond}
		s, caller := asked(t, store)
		store.writer <- struct{}{} // somebody holds it
		var wg sync.WaitGroup
		for n := range 10 {
			wg.Go(func() {
				key := fmt.Sprint("first-", n)
				_, _ = s.Put(t.Context(), caller(key, 30*time.Second), put(key))
			})
		}
		synctest.Wait()
		_, err := s.Put(t.Context(), caller("late", time.Second), put("late"))
		if !fault.Is(err, fault.DeadlineExceeded) || fault.From(err, "").SideEffects() != binding.SideEffectsNone {
			t.Errorf("got %v", err)
		}
		<-store.writer
		wg.Wait()
		if _, err := s.Put(t.Context(), caller("late", time.Minute), put("other")); err != nil { // its key was not taken
			t.Errorf("got %v", err)
		}
	})
}
