package rpc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/vector"
	"cofferdam.dev/services/statefacade/internal/rpc"
)

// meanings is an embedding endpoint that knows what a few words are about.
type meanings struct {
	mu    sync.Mutex
	fault fault.Code // what is answered instead
	// poison fails a request in which it stands.
	poison string
	asked  []string
}

var about = map[string]int{"coffee": 0, "tea": 0, "beverage": 0, "train": 1, "railway": 1, "station": 1}

func (m *meanings) Space() vector.Space { return vector.Space{Model: "meanings", Dimension: 3} }

func (m *meanings) Embed(_ context.Context, texts []string) ([]vector.Vector, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, texts...)
	if m.fault != "" {
		return nil, fault.New(m.fault, "test")
	}
	var out []vector.Vector
	for _, text := range texts {
		if m.poison != "" && strings.Contains(text, m.poison) {
			return nil, fault.New(fault.ModelFailed, "test")
		}
		of := []float64{0, 0, 0.1}
		for word := range strings.FieldsSeq(text) {
			if n, ok := about[word]; ok {
				of[n]++
			}
		}
		v, _ := vector.Unit(of)
		out = append(out, v)
	}
	return out, nil
}

// take gives what was asked since, and takes it away.
func (m *meanings) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	return asked
}

func (m *meanings) set(f func(*meanings)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// embedding is a session of a service that has the endpoint, and its log.
func embedding(t *testing.T) (*session, *meanings, *bytes.Buffer) {
	t.Helper()
	o := open(t, rpctest.NewStand(t))
	m, log := &meanings{}, &bytes.Buffer{}
	o.embedder = m
	o.stand.Logger = slog.New(slog.NewJSONHandler(&locked{to: log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	o.handler, err = rpc.NewHandler(o.config())
	must(t, err)
	return sessionOf(t, o, capability.Memory), m, log
}

type locked struct {
	mu sync.Mutex
	to *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// byMeaning is what the vector rank finds, and what it says that it was.
func (s *session) byMeaning(t *testing.T, query string, change ...func(*memoryv1.SearchRequest)) string {
	t.Helper()
	e := s.stand.Envelope()
	req := &memoryv1.SearchRequest{Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Query: query, Rank: memoryv1.Rank_RANK_VECTOR}
	for _, c := range change {
		c(req)
	}
	res, err := s.memory.Search(s.ctx(t, e), req)
	must(t, err)
	var out []string
	for _, m := range res.GetMatches() {
		out = append(out, m.GetKey())
	}
	return fmt.Sprintf("%s: %s", res.GetRankedBy(), strings.Join(out, " "))
}

func (s *session) wantByMeaning(t *testing.T, query, want string, change ...func(*memoryv1.SearchRequest)) {
	t.Helper()
	if got := s.byMeaning(t, query, change...); got != want {
		t.Errorf("%q finds %q, want %q", query, got, want)
	}
}

// M13: what means the same is found without a word in common, as soon as it is
// put, changed and deleted.
func TestVectorRank(t *testing.T) {
	s, m, _ := embedding(t)
	for key, content := range map[string]string{"drinks": "coffee never tea", "way": "the train from the station", "both": "coffee at the station"} {
		_, err := s.put(t, key, content, nil)
		must(t, err)
	}
	if asked := m.take(); len(asked) != 0 {
		t.Errorf("a put asked for embeddings of %q", asked)
	}
	s.wantByMeaning(t, "beverage", "RANK_VECTOR: drinks both way")
	if asked := m.take(); len(asked) != 4 {
		t.Errorf("the first search asked for %q", asked)
	}
	s.wantByMeaning(t, "railway", "RANK_VECTOR: way both drinks")
	if asked := m.take(); len(asked) != 1 {
		t.Errorf("the second search asked for %q", asked)
	}
	s.wantByMeaning(t, "beverage", "RANK_VECTOR: drinks", func(r *memoryv1.SearchRequest) { r.Limit = 1 })
	s.wantByMeaning(t, "beverage", "RANK_VECTOR: ", func(r *memoryv1.SearchRequest) { r.Kinds = []memoryv1.Kind{memoryv1.Kind_KIND_PROCEDURAL} })
	_, err := s.put(t, "drinks", "the railway", new(uint64(1)))
	must(t, err)
	s.wantByMeaning(t, "tea", "RANK_VECTOR: both drinks way")
	e := s.stand.Envelope()
	_, err = s.memory.Delete(s.ctx(t, e), &memoryv1.DeleteRequest{Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: "both", ExpectedRevision: 1})
	must(t, err)
	s.wantByMeaning(t, "tea", "RANK_VECTOR: drinks way")
	if got := s.keys(t, "beverage"); got != "" {
		t.Errorf("words find %q", got)
	}
}

// M13: where the endpoint is away words rank, and the answer says so; a write does
// not notice, and an endpoint that comes back is asked again.
func TestVectorRankFallsBack(t *testing.T) {
	s, m, log := embedding(t)
	const canary = "canary-of-a-text"
	_, err := s.put(t, "drinks", "coffee "+canary, nil)
	must(t, err)
	m.set(func(m *meanings) { m.fault = fault.ModelUnavailable })
	s.wantByMeaning(t, "coffee", "RANK_LEXICAL: drinks")
	s.wantByMeaning(t, "beverage "+canary, "RANK_LEXICAL: drinks")
	if asked := m.take(); len(asked) != 1 {
		t.Errorf("an endpoint that is away was asked %d times within a moment", len(asked))
	}
	m.set(func(m *meanings) { m.fault = "" })
	s.ahead = 11 * time.Second
	s.wantByMeaning(t, "beverage", "RANK_VECTOR: drinks")
	if said := log.String(); strings.Contains(said, canary) || !strings.Contains(said, "endpoint is away") {
		t.Errorf("the log says %s", said)
	}
	without := newSession(t, capability.Memory)
	_, err = without.put(t, "drinks", "coffee", nil)
	must(t, err)
	without.wantByMeaning(t, "coffee", "RANK_LEXICAL: drinks")
}

// M5 for the vector rank: nobody's records are looked at but those of the
// namespace, and the sweeper gives every one its vector.
func TestVectorRankStaysInItsNamespace(t *testing.T) {
	s, m, _ := embedding(t)
	_, err := s.put(t, "mine", "coffee", nil)
	must(t, err)
	for n := range 80 {
		c := memory.Change{
			ID: fmt.Sprint("foreign", n), Operation: memory.OpPut, Namespace: "foreign", Record: memory.Record{
				Key: fmt.Sprint("key-", n), Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte("tea"), UpdatedAt: time.Now(), Retention: "keep",
			},
		}
		if n == 40 {
			c.Record.Content = []byte("poison")
		}
		_, err := s.memories.Change(t.Context(), c, memory.MaxRecords)
		must(t, err)
	}
	s.wantByMeaning(t, "beverage", "RANK_VECTOR: mine")
	for _, text := range m.take() {
		if strings.Contains(text, "key-") {
			t.Errorf("a search in one namespace had %q of another one embedded", text)
		}
	}
	m.set(func(m *meanings) { m.poison = "poison" })
	service := s.service(memory.Policy{})
	if n, err := service.Embed(t.Context()); n != 80 || err != nil {
		t.Errorf("%d were found, %v", n, err)
	}
	left, err := s.memories.Unembedded(t.Context(), m.Space().String(), "", memory.Address{}, time.Now(), 100)
	if err != nil || len(left) != 1 || left[0].Key != "key-40" {
		t.Errorf("without a vector are %v, %v", left, err)
	}
	s.wantByMeaning(t, "beverage", "RANK_VECTOR: mine")
	m.set(func(m *meanings) { m.fault = fault.ModelUnavailable })
	if _, err := service.Embed(t.Context()); !fault.Is(err, fault.ModelUnavailable) {
		t.Errorf("with the endpoint away: %v", err)
	}
}

// A long record is embedded by what it begins with, in whole characters.
func TestWhatIsEmbeddedIsBounded(t *testing.T) {
	s, m, _ := embedding(t)
	_, err := s.put(t, "long", "coffee "+strings.Repeat("ä", 20<<10), nil)
	must(t, err)
	s.wantByMeaning(t, "tea", "RANK_VECTOR: long")
	asked := m.take()
	if long := asked[len(asked)-1]; len(long) > 4<<10 || len(long) < 4<<10-4 || !strings.HasPrefix(long, "long\ncoffee ") || strings.ToValidUTF8(long, "") != long {
		t.Errorf("%d bytes were embedded", len(long))
	}
}
