package memory

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

const (
	// DefaultMatches is how many records a search answers that does not say.
	DefaultMatches = 10
	// MaxMatches is how many one search answers at most.
	MaxMatches = 50
	// MaxQueryBytes bounds a query.
	MaxQueryBytes = 1 << 10
	// MaxExcerptBytes bounds what is shown of a record.
	MaxExcerptBytes = 512
	// before is how much of an excerpt stands before the word that was found.
	before = 128
)

// Rank names a way to order what was found.
type Rank string

// The ranks of the contract. The vector rank needs an embedding endpoint behind the
// model proxy; where there is none, or it is away, words rank instead.
const (
	RankLexical Rank = "lexical"
	RankVector  Rank = "vector"
)

// ranker orders the records of one namespace, which is all that it is given, and
// says by what.
type ranker interface {
	rank(ctx context.Context, namespace string, q Query) ([]lexical.Scored, Rank, error)
}

// Query is what is looked for.
type Query struct {
	Text string
	// Kinds to find; none is all.
	Kinds []Kind
	// Limit is 1 to MaxMatches; 0 is DefaultMatches.
	Limit int
	Rank  Rank
}

// Found is the answer of a search.
type Found struct {
	Matches []Match
	// Rank is what they were ordered by: words also where a vector rank was asked
	// for and could not be had.
	Rank Rank
}

// Match is a record that was found.
type Match struct {
	Key         string
	Kind        Kind
	ContentType string
	Revision    uint64
	UpdatedAt   time.Time
	// Excerpt is a part of the content around the first word that was found.
	Excerpt string
	// Score is higher for what fits better; it compares within one answer.
	Score float64
}

// Search ranks the records of one scope by a query, the best first. The namespace
// decides what is looked at, before anything is ranked. Faults: those of Get but
// for not_found; invalid_request.
func (s *Service) Search(ctx context.Context, c Caller, scope Scope, q Query) (Found, error) {
	const op = "memory.Search"
	p, err := s.locate(ctx, c, scope)
	if err != nil {
		return Found{}, err
	}
	switch {
	case q.Text == "" || len(q.Text) > MaxQueryBytes || !utf8.ValidString(q.Text):
		return Found{}, fault.New(fault.InvalidRequest, op, fault.Detail("query: 1 to 1024 bytes of UTF-8"))
	case q.Limit < 0 || q.Limit > MaxMatches:
		return Found{}, fault.New(fault.InvalidRequest, op, fault.Detail("limit: at most 50"))
	case q.Limit == 0:
		q.Limit = DefaultMatches
	}
	r, ok := s.rankers[q.Rank]
	if !ok {
		return Found{}, fault.New(fault.InvalidRequest, op, fault.Detail("rank: lexical or vector"))
	}
	ranked, by, err := r.rank(ctx, p.namespace, q)
	if err != nil {
		return Found{}, failed(ctx, err, fault.PersistenceFailed, op)
	}
	found, err := s.matches(ctx, p.namespace, q, ranked)
	if err != nil {
		return Found{}, err
	}
	return Found{Matches: found, Rank: by}, nil
}

// matches shows what was ranked. What was deleted meanwhile is left out.
func (s *Service) matches(ctx context.Context, namespace string, q Query, ranked []lexical.Scored) ([]Match, error) {
	words := lexical.Query(q.Text)
	out := make([]Match, 0, len(ranked))
	for _, found := range ranked {
		r, err := s.read(ctx, namespace, found.ID)
		switch {
		case fault.Is(err, fault.NotFound):
			continue
		case err != nil:
			return nil, err
		}
		out = append(out, Match{
			Key: r.Key, Kind: r.Kind, ContentType: r.ContentType, Revision: r.Revision, UpdatedAt: r.UpdatedAt,
			Excerpt: excerpt(string(r.Content), words), Score: found.Score,
		})
	}
	return out, nil
}

// excerpt is at most MaxExcerptBytes of a text, whole characters only.
func excerpt(text string, words []string) string {
	from := max(0, lexical.Find(text, words)-before)
	from = max(0, min(from, len(text)-MaxExcerptBytes))
	to := min(len(text), from+MaxExcerptBytes)
	return strings.ToValidUTF8(text[from:to], "")
}

// byWords is the lexical rank.
type byWords struct {
	store Store
	now   func() time.Time
}

func (b byWords) rank(ctx context.Context, namespace string, q Query) ([]lexical.Scored, Rank, error) {
	words := lexical.Query(q.Text)
	if len(words) == 0 {
		return nil, RankLexical, nil
	}
	corpus, hits, err := b.store.Find(ctx, namespace, words, q.Kinds, b.now())
	if err != nil {
		return nil, "", err
	}
	return lexical.Rank(words, corpus, hits, q.Limit), RankLexical, nil
}
