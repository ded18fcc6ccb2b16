// Package memorystoretest has the suite that every back end of the memory store
// must pass.
package memorystoretest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

const most = 4

// now is the moment at which the suite writes and reads.
var now = time.Unix(1700000000, 123456000).UTC()

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
		"kind that stands must be the one looked at":   mustReplace,
		"refused change leaves nothing":                refusedLeavesNothing,
		"namespaces do not meet":                       namespaces,
		"repeat gives the same revision":               repeat,
		"repeat after later changes":                   repeatLate,
		"bound of a namespace":                         bound,
		"bound of the keys of a namespace":             boundOfKeys,
		"one of many wins a missing key (beanie 1350)": oneWins,
		"no lost update":                               noLostUpdate,
		"a context that has ended":                     ended,
		"a deleted record has no content":              deleted,
		"what does not stand is not deleted":           notDeleted,
		"no revision comes twice over a deletion":      overDeletion,
		"a record whose time is over is not there":     expired,
		"expired records are listed and deleted":       sweep,
		"deleted keys are forgotten after their time":  forget,
		"sources must stand":                           sources,
		"the audit has every change":                   audit,
		"words find records":                           find,
		"words find what stands only":                  findStanding,
		"search does not leave its namespace":          findNamespace,
		"kinds narrow a search":                        findKinds,
		"every word of a long record":                  findLong,
		"vectors go with their revision":               embed,
		"vectors of one namespace and space":           embedNamespace,
		"vectors of what stands only":                  embedStanding,
		"what has no vector is listed in pages":        unembeddedPages,
	} {
		t.Run(name, func(t *testing.T) { f(test{t, open(t)}) })
	}
}

func change(id, namespace, key, content string, expected uint64) memory.Change {
	c := memory.Change{
		ID: id, Operation: memory.OpPut, Namespace: namespace, Expected: expected, Words: lexical.Index(key, content),
		Record: memory.Record{
			Key: key, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte(content),
			SHA256: sha256.Sum256([]byte(content)), UpdatedAt: now, Retention: "keep",
			Origin: memory.Origin{BindingID: "hs_1", Epoch: 1, Generation: 2, RunID: "run", Writer: "spiffe://test/sandbox/1"},
		},
	}
	if expected > 0 {
		c.Replaces = memory.KindSemantic
	}
	return c
}

func deletion(id, namespace, key string, expected uint64) memory.Change {
	return memory.Change{
		ID: id, Operation: memory.OpDelete, Namespace: namespace, Expected: expected, Replaces: memory.KindSemantic,
		Record: memory.Record{Key: key, UpdatedAt: now, Origin: memory.Origin{BindingID: "hs_2", Epoch: 3, Generation: 4, RunID: "run-2", Writer: "spiffe://test/sandbox/2"}},
	}
}

func (t test) make(c memory.Change) uint64 {
	t.Helper()
	revision, err := t.Change(t.Context(), c, most)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (t test) refused(c memory.Change, want error) {
	t.Helper()
	if revision, err := t.Change(t.Context(), c, most); !errors.Is(err, want) {
		t.Errorf("got revision %d, %v, want %v", revision, err, want)
	}
}

func (t test) content(namespace string) string { return t.contentOf(namespace, "key", now) }

func (t test) contentOf(namespace, key string, at time.Time) string {
	t.Helper()
	r, err := t.Get(t.Context(), namespace, key, at)
	if errors.Is(err, memory.ErrNotFound) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", r.Revision, r.Content)
}

func (t test) want(got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
