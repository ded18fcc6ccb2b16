package memorystore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/statefacade/internal/memory"
)

// overtaken is how often a change is tried again that another one overtook.
const overtaken = 256

// Change implements [memory.Store].
func (s *MongoDB) Change(ctx context.Context, c memory.Change, most int) (revision uint64, err error) {
	for range overtaken {
		revision, done, err := s.change(ctx, c, most)
		if err != nil {
			return 0, fmt.Errorf("change memory: %w", err)
		}
		if done {
			return revision, nil
		}
	}
	return 0, fmt.Errorf("change memory: overtaken %d times", overtaken)
}

func (s *MongoDB) change(ctx context.Context, c memory.Change, most int) (revision uint64, done bool, err error) {
	if revision, done, err = s.changed(ctx, c.ID); done || err != nil {
		return revision, done, err
	}
	stands, err := s.look(ctx, c.Namespace, c.Record.Key)
	switch {
	case err != nil:
		return 0, false, err
	case stands.Change == c.ID: // made, by an attempt that did not come back
		return unsigned(stands.Revision), true, s.keep(ctx, stands)
	}
	if refused := s.compare(ctx, c, stands, most); refused != nil {
		// Made and overtaken since the first look? Then its row stands.
		if revision, done, err = s.changed(ctx, c.ID); done || err != nil {
			return revision, done, err
		}
		return 0, false, refused
	}
	next := stands.after(c)
	if stands.Revision == 0 {
		done, err = s.insert(ctx, next, most*memory.KeysPerRecord)
	} else {
		done, err = s.replace(ctx, stands, next)
	}
	if !done || err != nil {
		return 0, false, err
	}
	return unsigned(next.Revision), true, s.keep(ctx, next)
}

// compare says why a change may not be made over what stands.
func (s *MongoDB) compare(ctx context.Context, c memory.Change, stands document, most int) error {
	now := c.Record.UpdatedAt
	exists := stands.exists(now)
	if c.Operation == memory.OpExpire {
		exists = stands.Revision > 0 && !stands.Deleted
	}
	switch {
	case !exists && c.Operation != memory.OpPut:
		return memory.ErrNotFound
	case exists && (stands.Revision != signed(c.Expected) || stands.Kind != string(c.Replaces)), !exists && c.Expected != 0:
		return memory.ErrRevision
	}
	for _, from := range c.Record.Origin.Sources {
		source, err := s.look(ctx, c.Namespace, from.Key)
		switch {
		case err != nil:
			return err
		case !source.exists(now) || source.Revision != signed(from.Revision):
			return memory.ErrSource
		}
	}
	if exists {
		return nil
	}
	records, err := s.records.CountDocuments(ctx, bson.D{{Key: "scope", Value: c.Namespace}, {Key: "deleted", Value: false}}, options.Count().SetLimit(int64(most)))
	switch {
	case err != nil:
		return err
	case records >= int64(most):
		return memory.ErrFull
	}
	return nil
}

// changed gives the revision of a change that has its row.
func (s *MongoDB) changed(ctx context.Context, id string) (revision uint64, made bool, err error) {
	var r row
	switch err := s.changes.FindOne(ctx, byID(id)).Decode(&r); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	return unsigned(r.Revision), true, nil
}

// insert makes a record under a key that there is not. One that is there may be
// what this very call inserted, repeated by the driver: the next look tells.
func (s *MongoDB) insert(ctx context.Context, next document, most int) (inserted bool, err error) {
	inserted, err = mongodbstore.InsertInSlot(ctx, s.records, byID(next.ID), next.Namespace, most, func(slot int32) any {
		next.Slot = slot
		return next
	})
	if errors.Is(err, mongodbstore.ErrNoSlot) {
		return false, memory.ErrFull
	}
	return inserted, err
}

// replace puts a revision over exactly the one that stands, whose row is kept
// before.
func (s *MongoDB) replace(ctx context.Context, stands, next document) (replaced bool, err error) {
	if err := s.keep(ctx, stands); err != nil {
		return false, err
	}
	res, err := s.records.ReplaceOne(ctx, stands.itself(), next)
	if err != nil {
		return false, err
	}
	return res.MatchedCount == 1, nil
}

// keep writes the row of the change that made the document. A repeat is harmless.
func (s *MongoDB) keep(ctx context.Context, d document) error {
	_, err := s.changes.InsertOne(ctx, d.row())
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}
