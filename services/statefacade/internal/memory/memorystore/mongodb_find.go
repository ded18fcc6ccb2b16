package memorystore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

// Find implements [memory.Store]. What it counts and what it finds are read one
// after the other: a change between the two moves scores a little, and nothing
// else.
func (s *MongoDB) Find(ctx context.Context, namespace string, words []string, kinds []memory.Kind, now time.Time) (lexical.Corpus, []lexical.Hit, error) {
	hits, err := s.hits(ctx, namespace, words, kinds, now)
	if err != nil || len(hits) == 0 {
		return lexical.Corpus{}, nil, findError(err)
	}
	c, err := s.corpus(ctx, namespace, now)
	if err != nil {
		return lexical.Corpus{}, nil, findError(err)
	}
	return c, hits, nil
}

func findError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("find memory: %w", err)
}

// standing are the records of a namespace now.
func standing(namespace string, now time.Time) bson.D {
	return bson.D{{Key: "scope", Value: namespace}, {Key: "deleted", Value: false}, lasting(now)}
}

// lasting says that a record's time is not over.
func lasting(now time.Time) bson.E {
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: "expires", Value: int64(0)}}, bson.D{{Key: "expires", Value: bson.D{{Key: "$gt", Value: now.UnixMicro()}}}},
	}}
}

func (s *MongoDB) hits(ctx context.Context, namespace string, words []string, kinds []memory.Kind, now time.Time) ([]lexical.Hit, error) {
	filter := append(standing(namespace, now), bson.E{Key: "terms", Value: bson.D{{Key: "$in", Value: words}}})
	if len(kinds) > 0 {
		filter = append(filter, bson.E{Key: "kind", Value: bson.D{{Key: "$in", Value: kinds}}})
	}
	// Of what a record is found by, only what was looked for is read.
	fields := bson.D{{Key: "key", Value: 1}, {Key: "words", Value: 1}}
	for _, w := range words {
		fields = append(fields, bson.E{Key: "counts." + w, Value: 1})
	}
	found, err := s.records.Find(ctx, filter, options.Find().SetProjection(fields))
	if err != nil {
		return nil, err
	}
	var all []document
	if err := found.All(ctx, &all); err != nil {
		return nil, err
	}
	hits := make([]lexical.Hit, 0, len(all))
	for _, d := range all {
		h := lexical.Hit{ID: d.Key, Words: int(d.Words), Counts: make(map[string]int, len(words))}
		for _, w := range words {
			if n := d.Counts[w]; n > 0 {
				h.Counts[w] = int(n)
			}
		}
		hits = append(hits, h)
	}
	return hits, nil
}

func (s *MongoDB) corpus(ctx context.Context, namespace string, now time.Time) (c lexical.Corpus, err error) {
	found, err := s.records.Find(ctx, standing(namespace, now), options.Find().SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "words", Value: 1}}))
	if err != nil {
		return c, err
	}
	var all []struct {
		Words int `bson:"words"`
	}
	if err := found.All(ctx, &all); err != nil {
		return c, err
	}
	for _, d := range all {
		c.Texts++
		c.Words += d.Words
	}
	return c, nil
}
