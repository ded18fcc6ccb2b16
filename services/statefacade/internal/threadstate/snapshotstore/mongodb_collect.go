package snapshotstore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// List implements [threadstate.Collection].
func (s *MongoDB) List(ctx context.Context, bindingID string) ([]threadstate.Entry, error) {
	found, err := s.snapshots.Find(ctx, bson.D{{Key: "binding", Value: bindingID}},
		options.Find().SetProjection(withoutPayload()).SetSort(bson.D{{Key: "created_at", Value: 1}, {Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var docs []document
	if err := found.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	all := make([]threadstate.Entry, 0, len(docs))
	for _, d := range docs {
		e, err := d.entry()
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Remove implements [threadstate.Collection].
func (s *MongoDB) Remove(ctx context.Context, ref string) error {
	if _, err := s.snapshots.DeleteOne(ctx, byRef(ref)); err != nil {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	return nil
}

// Unsettled implements [threadstate.Collection].
func (s *MongoDB) Unsettled(ctx context.Context, before time.Time, after string, limit int) ([]string, error) {
	found, err := s.snapshots.Aggregate(ctx, bson.A{
		bson.D{{Key: "$match", Value: bson.D{
			{Key: "settled", Value: false},
			{Key: "binding", Value: bson.D{{Key: "$gt", Value: after}}},
			{Key: "created_at", Value: bson.D{{Key: "$lt", Value: before.UnixMicro()}}},
		}}},
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$binding"}}}},
		bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
		bson.D{{Key: "$limit", Value: int64(limit)}},
	})
	if err != nil {
		return nil, fmt.Errorf("find unsettled snapshots: %w", err)
	}
	var docs []struct {
		ID string `bson:"_id"`
	}
	if err := found.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("find unsettled snapshots: %w", err)
	}
	ids := make([]string, 0, len(docs))
	for _, d := range docs {
		ids = append(ids, d.ID)
	}
	return ids, nil
}

// Settle implements [threadstate.Collection].
func (s *MongoDB) Settle(ctx context.Context, ref string) error {
	if _, err := s.snapshots.UpdateOne(ctx, byRef(ref), bson.D{{Key: "$set", Value: bson.D{{Key: "settled", Value: true}}}}); err != nil {
		return fmt.Errorf("settle snapshot: %w", err)
	}
	return nil
}
