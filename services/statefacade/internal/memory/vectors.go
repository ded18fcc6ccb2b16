package memory

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/statefacade/internal/memory/lexical"
	"cofferdam.dev/services/statefacade/internal/memory/vector"
)

const (
	// embedLimit bounds one request for embeddings.
	embedLimit = 5 * time.Second
	// embedPage is how many texts one request has.
	embedPage = 32
	// maxEmbedded is how many bytes of a record are embedded, its key included:
	// models take a few thousand tokens.
	maxEmbedded = 4 << 10
	// awayFor is how long an endpoint that did not answer is left alone, so that
	// not every search waits for it.
	awayFor = 10 * time.Second
)

// Embedder makes vectors of texts. It is safe for concurrent use.
type Embedder interface {
	// Space is where its vectors are.
	Space() vector.Space
	// Embed gives one vector of the space for each text. model_failed,
	// invalid_request and request_too_large say that these very texts cannot be
	// embedded; anything else, that the endpoint is away.
	Embed(ctx context.Context, texts []string) ([]vector.Vector, error)
}

// byVector is the vector rank. Records are embedded after they were stored, so that
// no write waits for an endpoint or fails with it: each search first embeds up to
// embedPage records of its namespace that are not yet, and the sweeper embeds the
// rest. Where the endpoint is away it ranks by words.
type byVector struct {
	*Service

	words ranker
	away  *atomic.Int64 // until when, in Unix nanoseconds
}

func (b byVector) rank(ctx context.Context, namespace string, q Query) ([]lexical.Scored, Rank, error) {
	asked, err := b.embed(ctx, []string{q.Text})
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		return b.words.rank(ctx, namespace, q)
	}
	if err := b.fillNamespace(ctx, namespace); err != nil && ctx.Err() == nil {
		b.cfg.Logger.WarnContext(ctx, "some records could not be embedded before a search; it ranks the others", "error", err.Error())
	}
	nearest := vector.Nearest{Limit: q.Limit}
	err = b.cfg.Store.Vectors(ctx, namespace, b.cfg.Embedder.Space().String(), q.Kinds, b.cfg.Now(), func(key string, stored []byte) {
		if near, ok := asked[0].Near(stored); ok {
			nearest.Take(lexical.Scored{ID: key, Score: near})
		}
	})
	return nearest.Found(), RankVector, err
}

// fillNamespace embeds what a search may wait for.
func (b byVector) fillNamespace(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, embedLimit)
	defer cancel()
	_, _, err := b.fill(ctx, namespace, Address{})
	return err
}

// embed asks the endpoint, unless it was away a moment ago.
func (b byVector) embed(ctx context.Context, texts []string) ([]vector.Vector, error) {
	if b.cfg.Now().UnixNano() < b.away.Load() {
		return nil, fault.New(fault.ModelUnavailable, "memory.embed")
	}
	limited, cancel := context.WithTimeout(ctx, embedLimit)
	defer cancel()
	vectors, err := b.cfg.Embedder.Embed(limited, texts)
	if err != nil && !unembeddable(err) && ctx.Err() == nil { // who asks with little time left says nothing of the endpoint
		b.away.Store(b.cfg.Now().Add(awayFor).UnixNano())
		b.cfg.Logger.WarnContext(ctx, "the embedding endpoint is away: searches rank by words meanwhile", "error", err.Error())
	}
	return vectors, err
}

// unembeddable says that the texts are at fault, and not the endpoint.
func unembeddable(err error) bool {
	return fault.Is(err, fault.ModelFailed) || fault.Is(err, fault.InvalidRequest) || fault.Is(err, fault.RequestTooLarge)
}

// fill embeds a page of the records behind after that have no vector of this
// space, of one namespace or of all. It gives the last that it looked at, and how
// many it found.
func (b byVector) fill(ctx context.Context, namespace string, after Address) (last Address, n int, err error) {
	page, err := b.cfg.Store.Unembedded(ctx, b.cfg.Embedder.Space().String(), namespace, after, b.cfg.Now(), embedPage)
	if err != nil || len(page) == 0 {
		return after, 0, err
	}
	last = page[len(page)-1]
	texts, of := make([]string, 0, len(page)), page[:0]
	for _, a := range page {
		r, err := b.cfg.Store.Get(ctx, a.Namespace, a.Key, b.cfg.Now())
		switch {
		case errors.Is(err, ErrNotFound), err == nil && r.Revision != a.Revision: // somebody has written or deleted it
			continue
		case err != nil:
			return after, 0, err
		}
		texts, of = append(texts, embedded(r)), append(of, a)
	}
	return last, len(page), b.keep(ctx, of, texts)
}

// keep embeds texts and stores the vectors with their records. One text that
// cannot be embedded keeps no other from it.
func (b byVector) keep(ctx context.Context, of []Address, texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	vectors, err := b.embed(ctx, texts)
	if unembeddable(err) && len(texts) > 1 {
		half := len(texts) / 2
		return errors.Join(b.keep(ctx, of[:half], texts[:half]), b.keep(ctx, of[half:], texts[half:]))
	}
	if err != nil {
		return err
	}
	for i, a := range of {
		if err := b.cfg.Store.Embed(ctx, a, b.cfg.Embedder.Space().String(), vectors[i].Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// embedded is the text of a record that its vector is of.
func embedded(r Record) string { return event.Truncate(r.Key+"\n"+string(r.Content), maxEmbedded) }

// Embed embeds all records that are not yet, and says how many it found. A record
// that the endpoint does not take is found by words alone, and tried again the next
// time.
func (s *Service) Embed(ctx context.Context) (found int, err error) {
	b, ok := s.rankers[RankVector].(byVector)
	if !ok {
		return 0, nil
	}
	var after Address
	for {
		last, n, err := b.fill(ctx, "", after)
		if found += n; err != nil && !unembeddable(err) {
			return found, fmt.Errorf("memory: embed: %w", err)
		}
		if n < embedPage {
			return found, nil
		}
		after = last
	}
}
