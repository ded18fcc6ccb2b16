package memorystore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/services/statefacade/internal/memory"
)

// Unembedded implements [memory.Store].
func (s *MongoDB) Unembedded(ctx context.Context, space, namespace string, after memory.Address, now time.Time, limit int) ([]memory.Address, error) {
	filter := bson.D{
		{Key: "deleted", Value: false},
		{Key: "space", Value: bson.D{{Key: "$ne", Value: space}}},
		lasting(now),
		{Key: "_id", Value: bson.D{{Key: "$gt", Value: recordID(after.Namespace, after.Key)}}},
	}
	if namespace != "" {
		filter = append(filter, bson.E{Key: "scope", Value: namespace})
	}
	all, err := s.addresses(ctx, filter, "_id", limit)
	if err != nil {
		return nil, fmt.Errorf("unembedded memory: %w", err)
	}
	return addressesOf(all), nil
}

// Embed implements [memory.Store].
func (s *MongoDB) Embed(ctx context.Context, a memory.Address, space string, vector []byte) error {
	filter := append(byID(recordID(a.Namespace, a.Key)), bson.E{Key: "revision", Value: signed(a.Revision)}, bson.E{Key: "deleted", Value: false})
	if _, err := s.records.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: bson.D{{Key: "space", Value: space}, {Key: "vector", Value: vector}}}}); err != nil {
		return fmt.Errorf("embed memory: %w", err)
	}
	return nil
}

// Vectors implements [memory.Store].
func (s *MongoDB) Vectors(ctx context.Context, namespace, space string, kinds []memory.Kind, now time.Time, take func(key string, vector []byte)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("vectors of memory: %w", err)
		}
	}()
	filter := append(standing(namespace, now), bson.E{Key: "space", Value: space})
	if len(kinds) > 0 {
		filter = append(filter, bson.E{Key: "kind", Value: bson.D{{Key: "$in", Value: kinds}}})
	}
	found, err := s.records.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "key", Value: 1}, {Key: "vector", Value: 1}}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close(ctx)) }()
	for found.Next(ctx) {
		var d struct {
			Key    string `bson:"key"`
			Vector []byte `bson:"vector"`
		}
		if err := found.Decode(&d); err != nil {
			return err
		}
		take(d.Key, d.Vector)
	}
	return found.Err()
}
