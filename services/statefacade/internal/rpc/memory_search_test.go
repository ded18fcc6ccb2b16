package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/statefacade/internal/memory"
)

func (s *session) find(t *testing.T, scope memoryv1.Scope, query string, change ...func(*memoryv1.SearchRequest)) ([]*memoryv1.Match, error) {
	t.Helper()
	e := s.stand.Envelope()
	req := &memoryv1.SearchRequest{Envelope: e.Proto(), Scope: scope, Query: query}
	for _, c := range change {
		c(req)
	}
	res, err := s.memory.Search(s.ctx(t, e), req)
	return res.GetMatches(), err
}

func (s *session) keys(t *testing.T, query string, change ...func(*memoryv1.SearchRequest)) string {
	t.Helper()
	found, err := s.find(t, memoryv1.Scope_SCOPE_USER, query, change...)
	must(t, err)
	var keys []string
	for n, m := range found {
		keys = append(keys, m.GetKey())
		if n > 0 && m.GetScore() > found[n-1].GetScore() {
			t.Errorf("%s is behind a lower one", m.GetKey())
		}
	}
	return strings.Join(keys, " ")
}

func TestSearch(t *testing.T) {
	s := newSession(t, capability.Memory)
	for key, content := range map[string]string{
		"drinks": "She drinks coffee, never tea.", "coffee": "The coffee of the office is the coffee of the kitchen.",
		"office": "The office is in Berlin; bring a key to the kitchen.",
	} {
		_, err := s.put(t, key, content, nil)
		must(t, err)
	}
	for query, want := range map[string]string{
		"coffee": "coffee drinks", "KITCHEN berlin": "office coffee", "tea": "drinks", "nothing": "", "... !": "",
	} {
		if got := s.keys(t, query); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
	if got := s.keys(t, "coffee", func(r *memoryv1.SearchRequest) { r.Limit = 1 }); got != "coffee" {
		t.Errorf("the best one is %q", got)
	}
	if got := s.keys(t, "coffee", func(r *memoryv1.SearchRequest) { r.Kinds = []memoryv1.Kind{memoryv1.Kind_KIND_PROCEDURAL} }); got != "" {
		t.Errorf("of another kind: %q", got)
	}
	found, err := s.find(t, memoryv1.Scope_SCOPE_USER, "tea")
	must(t, err)
	if m := found[0]; m.GetRevision() != 1 || m.GetKind() != memoryv1.Kind_KIND_SEMANTIC || m.GetContentType() != "text/plain" ||
		m.GetExcerpt() != "She drinks coffee, never tea." || m.GetScore() <= 0 || m.GetUpdatedAt() == nil {
		t.Errorf("got %v", m)
	}
}

// However much there is, an answer is small, and shows where the word stands.
func TestSearchIsBounded(t *testing.T) {
	s := newSession(t, capability.Memory)
	long := strings.Repeat("ä filler ", 3000) + "needle " + strings.Repeat("ö more ", 3000)
	for n := range memory.MaxMatches + 5 {
		s.remembered(t, fmt.Sprintf("key-%03d", n), "needle")
	}
	_, err := s.put(t, "long", long, nil)
	must(t, err)
	for limit, want := range map[uint32]int{0: memory.DefaultMatches, 3: 3, 50: memory.MaxMatches} {
		if found, err := s.find(t, memoryv1.Scope_SCOPE_USER, "needle", func(r *memoryv1.SearchRequest) { r.Limit = limit }); err != nil || len(found) != want {
			t.Errorf("limit %d gives %d, %v", limit, len(found), err)
		}
	}
	found, err := s.find(t, memoryv1.Scope_SCOPE_USER, "long needle")
	must(t, err)
	if m := found[0]; m.GetKey() != "long" || len(m.GetExcerpt()) > memory.MaxExcerptBytes || !strings.Contains(m.GetExcerpt(), "needle") {
		t.Errorf("%s: %d bytes, %q", m.GetKey(), len(m.GetExcerpt()), m.GetExcerpt())
	}
	for name, change := range map[string]func(*memoryv1.SearchRequest){
		"no query":       func(r *memoryv1.SearchRequest) { r.Query = "" },
		"a long query":   func(r *memoryv1.SearchRequest) { r.Query = strings.Repeat("a", 1025) },
		"too much":       func(r *memoryv1.SearchRequest) { r.Limit = 51 },
		"no scope":       func(r *memoryv1.SearchRequest) { r.Scope = 0 },
		"an odd kind":    func(r *memoryv1.SearchRequest) { r.Kinds = []memoryv1.Kind{9} },
		"an unknown way": func(r *memoryv1.SearchRequest) { r.Rank = 9 },
	} {
		if _, err := s.find(t, memoryv1.Scope_SCOPE_USER, "needle", change); fault.CodeOf(err) != fault.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}
