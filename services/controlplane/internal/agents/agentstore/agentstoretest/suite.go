// Package agentstoretest has the suite that every back end of the versions of
// agents passes.
package agentstoretest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/services/controlplane/internal/agents"
)

// Run runs the suite. open opens another replica's connection to one store, which is
// new for each call of world.
func Run(t *testing.T, world func(t *testing.T) (open func(t *testing.T) agents.Store)) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, func(*testing.T) agents.Store){
		"nothing stands":                   nothing,
		"what was made comes back":         comesBack,
		"a version never changes":          immutable,
		"of many at once one makes it":     oneWins,
		"the newest of each, by id":        list,
		"the digests of one agent":         digests,
		"a call whose context has ended":   ended,
		"a version as large as it may be":  large,
		"the largest number of a version":  largest,
		"ids that differ by little differ": alike,
	} {
		t.Run(name, func(t *testing.T) { test(t, world(t)) })
	}
}

func record(id string, version uint32, body string) agents.Record {
	return agents.Record{ID: id, Version: version, Digest: "digest of " + body, Body: []byte(body), At: time.Unix(1700000000, 123456789).UTC()}
}

func insert(t *testing.T, s agents.Store, want bool, records ...agents.Record) {
	t.Helper()
	for _, r := range records {
		if made, err := s.Insert(t.Context(), r); made != want || err != nil {
			t.Fatalf("insert of %s version %d: %v, %v, want %v", r.ID, r.Version, made, err, want)
		}
	}
}

func stands(t *testing.T, s agents.Store, want agents.Record) {
	t.Helper()
	if got, err := s.Load(t.Context(), want.ID, want.Version); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%.200v, %v, want %.200v", got, err, want)
	}
}

// newest looks at the newest version of the agent "a".
func newest(t *testing.T, s agents.Store, version uint32, digest string) {
	t.Helper()
	if got, err := s.Newest(t.Context(), "a"); err != nil || got != (agents.Newest{ID: "a", Version: version, Digest: digest}) {
		t.Errorf("newest: %+v, %v, want version %d %s", got, err, version, digest)
	}
}

func nothing(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s := open(t)
	newest(t, s, 0, "")
	if _, err := s.Load(t.Context(), "a", 1); !errors.Is(err, agents.ErrNoVersion) {
		t.Errorf("load: %v", err)
	}
	if all, err := s.List(t.Context(), 10); len(all) != 0 || err != nil {
		t.Errorf("list: %v, %v", all, err)
	}
	if all, err := s.Digests(t.Context(), "a"); len(all) != 0 || err != nil {
		t.Errorf("digests: %v, %v", all, err)
	}
}

func comesBack(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	a, b := open(t), open(t)
	one, two := record("a", 1, `{"n":1}`), record("a", 2, `{"n":2}`)
	insert(t, a, true, one, two)
	for _, s := range []agents.Store{a, b} {
		stands(t, s, one)
		stands(t, s, two)
		newest(t, s, 2, two.Digest)
	}
	if _, err := b.Load(t.Context(), "a", 3); !errors.Is(err, agents.ErrNoVersion) {
		t.Errorf("load: %v", err)
	}
}

func immutable(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	a, b := open(t), open(t)
	first := record("a", 3, "first")
	insert(t, a, true, first)
	insert(t, b, false, record("a", 3, "second"))
	insert(t, a, false, first)
	stands(t, b, first)
	insert(t, b, true, record("a", 2, "older"))
	newest(t, a, 3, first.Digest)
}

func oneWins(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	const replicas = 8
	stores := make([]agents.Store, replicas)
	for i := range stores {
		stores[i] = open(t)
	}
	var won atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			r := record("a", 1, fmt.Sprint("of replica ", i))
			made, err := s.Insert(t.Context(), r)
			if err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
			if made {
				won.Add(1)
				winner.Store(r)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d made it", won.Load())
	}
	stands(t, stores[0], winner.Load().(agents.Record)) //nolint:forcetypeassert // stored above
}

func list(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s := open(t)
	insert(t, s, true, record("b", 1, "b1"), record("a", 1, "a1"), record("c", 7, "c7"), record("a", 2, "a2"), record("a", 10, "a10"))
	want := []agents.Newest{{ID: "a", Version: 10, Digest: "digest of a10"}, {ID: "b", Version: 1, Digest: "digest of b1"}, {ID: "c", Version: 7, Digest: "digest of c7"}}
	for limit := 1; limit <= 4; limit++ {
		if got, err := s.List(t.Context(), limit); err != nil || !reflect.DeepEqual(got, want[:min(limit, 3)]) {
			t.Errorf("at most %d: %v, %v", limit, got, err)
		}
	}
}

func digests(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s := open(t)
	again := record("a", 4, "one")
	insert(t, s, true, record("a", 1, "one"), record("a", 2, "two"), again, record("b", 9, "other"))
	want := map[string]uint32{"digest of one": 4, "digest of two": 2}
	if got, err := s.Digests(t.Context(), "a"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func ended(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s := open(t)
	insert(t, s, true, record("a", 1, "one"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if made, err := s.Insert(ctx, record("a", 2, "two")); made || !errors.Is(err, context.Canceled) {
		t.Errorf("insert: %v, %v", made, err)
	}
	_, err1 := s.Newest(ctx, "a")
	_, err2 := s.Load(ctx, "a", 1)
	_, err3 := s.List(ctx, 1)
	_, err4 := s.Digests(ctx, "a")
	for _, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v", err)
		}
	}
	newest(t, s, 1, "digest of one")
}

func large(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s, body := open(t), make([]byte, agents.MaxBytes)
	for i := range body {
		body[i] = byte(i * 7)
	}
	r := agents.Record{ID: "a", Version: 1, Digest: "d", Body: body, At: time.Unix(0, 0).UTC()}
	insert(t, s, true, r)
	stands(t, s, r)
}

func largest(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s, r := open(t), record("a", 1<<32-1, "last")
	insert(t, s, true, r)
	stands(t, s, r)
	newest(t, s, 1<<32-1, r.Digest)
}

func alike(t *testing.T, open func(*testing.T) agents.Store) {
	t.Helper()
	s := open(t)
	for i, id := range []string{"a", "A", "a.", "a-1", "a_1", "a1"} {
		insert(t, s, true, record(id, 1, fmt.Sprint(i)))
	}
	if all, err := s.List(t.Context(), 10); len(all) != 6 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}
