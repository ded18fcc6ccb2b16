package memorystore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/statefacade/internal/memory"
)

const (
	recordsName = "memory_records"
	changesName = "memory_changes"
)

// schema of the collections, which all begin with memory_. A namespace is a scope,
// whose slots are the bound of its keys. Every index that a search or a look for a
// record uses begins with the namespace.
func schema() []mongodbstore.Step {
	return []mongodbstore.Step{
		{Indexes: []mongodbstore.Index{
			mongodbstore.SlotIndex(recordsName),
			{Collection: changesName, Keys: bson.D{{Key: "namespace", Value: 1}, {Key: "key", Value: 1}, {Key: "revision", Value: 1}}},
		}},
		{
			Indexes: []mongodbstore.Index{
				{Collection: recordsName, Keys: bson.D{{Key: "scope", Value: 1}, {Key: "terms", Value: 1}}},
				{Collection: recordsName, Keys: bson.D{{Key: "deleted", Value: 1}, {Key: "expires", Value: 1}}},
				{Collection: recordsName, Keys: bson.D{{Key: "deleted", Value: 1}, {Key: "updated_at", Value: 1}}},
			},
			Apply: func(ctx context.Context, db *mongodbstore.DB) error {
				_, err := db.Collection(recordsName).UpdateMany(ctx, bson.D{{Key: "deleted", Value: bson.D{{Key: "$exists", Value: false}}}},
					bson.D{{Key: "$set", Value: bson.D{
						{Key: "deleted", Value: false},
						{Key: "expires", Value: int64(0)},
						{Key: "operation", Value: string(memory.OpPut)},
						{Key: "retention", Value: memory.KeepProfile},
						{Key: "words", Value: int64(0)},
					}}})
				return err
			},
		},
		{Indexes: []mongodbstore.Index{{Collection: recordsName, Keys: bson.D{{Key: "deleted", Value: 1}, {Key: "space", Value: 1}, {Key: "_id", Value: 1}}}}},
	}
}

// MongoDB keeps memory in one database.
//
// A record is one document, and what decides is the one write that puts the next
// revision into it; a deletion is a revision without content. That write carries
// the change's ID; the row of the change is written after it, and at the latest by
// whoever is to put another revision over it, before. So a change was made if it
// stands in the record or in the rows, and an acknowledged change has its row.
type MongoDB struct {
	db               *mongodbstore.DB
	records, changes *mongo.Collection
}

var _ memory.Store = (*MongoDB)(nil)

// OpenMongoDB makes the indexes and checks the version of what is there. Close
// closes db.
func OpenMongoDB(ctx context.Context, db *mongodbstore.DB) (*MongoDB, error) {
	if err := db.Migrate(ctx, component, schema()); err != nil {
		return nil, fmt.Errorf("open %s store: %w", component, err)
	}
	return &MongoDB{db: db, records: db.Collection(recordsName), changes: db.Collection(changesName)}, nil
}

// Close gives the connections up.
func (s *MongoDB) Close() error { return s.db.Close() }

// Check asks whether the database answers, with the version that is known here.
func (s *MongoDB) Check(ctx context.Context) error { return s.db.Check(ctx) }

// Get implements [memory.Store].
func (s *MongoDB) Get(ctx context.Context, namespace, key string, now time.Time) (memory.Record, error) {
	d, err := s.look(ctx, namespace, key)
	switch {
	case err != nil:
		return memory.Record{}, fmt.Errorf("get memory: %w", err)
	case !d.exists(now):
		return memory.Record{}, memory.ErrNotFound
	}
	r, err := d.record(d.Key)
	if err != nil {
		return memory.Record{}, fmt.Errorf("get memory: %w", err)
	}
	r.Content = d.Content
	return r, nil
}

// look reads what stands under a key; the zero document is nothing.
func (s *MongoDB) look(ctx context.Context, namespace, key string) (d document, err error) {
	err = s.records.FindOne(ctx, byID(recordID(namespace, key)), options.FindOne().SetProjection(bson.D{{Key: "terms", Value: 0}, {Key: "counts", Value: 0}, {Key: "vector", Value: 0}})).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return document{}, nil
	}
	return d, err
}

// Expired implements [memory.Store].
func (s *MongoDB) Expired(ctx context.Context, now time.Time, limit int) ([]memory.Address, error) {
	all, err := s.addresses(ctx, bson.D{
		{Key: "deleted", Value: false}, {Key: "expires", Value: bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lte", Value: now.UnixMicro()}}},
	}, "expires", limit)
	if err != nil {
		return nil, fmt.Errorf("expired memory: %w", err)
	}
	return addressesOf(all), nil
}

func addressesOf(all []document) []memory.Address {
	out := make([]memory.Address, 0, len(all))
	for _, d := range all {
		out = append(out, memory.Address{Namespace: d.Namespace, Key: d.Key, Revision: unsigned(d.Revision), Kind: memory.Kind(d.Kind)})
	}
	return out
}

// addresses finds documents without their content.
func (s *MongoDB) addresses(ctx context.Context, filter bson.D, order string, limit int) (all []document, err error) {
	found, err := s.records.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: order, Value: 1}}).SetLimit(int64(limit)).
		SetProjection(bson.D{{Key: "content", Value: 0}, {Key: "terms", Value: 0}, {Key: "counts", Value: 0}, {Key: "vector", Value: 0}}))
	if err != nil {
		return nil, err
	}
	err = found.All(ctx, &all)
	return all, err
}

// Forget implements [memory.Store]. The record goes last, so that one who stops
// half-way leaves what the next one finds.
func (s *MongoDB) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	all, err := s.addresses(ctx, bson.D{
		{Key: "deleted", Value: true}, {Key: "updated_at", Value: bson.D{{Key: "$lt", Value: before.UnixMicro()}}},
	}, "updated_at", limit)
	if err != nil {
		return 0, fmt.Errorf("forget memory: %w", err)
	}
	for _, d := range all {
		if _, err := s.changes.DeleteMany(ctx, rowsOf(d.Namespace, d.Key)); err != nil {
			return 0, fmt.Errorf("forget memory: %w", err)
		}
		if _, err := s.records.DeleteOne(ctx, d.itself()); err != nil {
			return 0, fmt.Errorf("forget memory: %w", err)
		}
	}
	return len(all), nil
}

// Audit implements [memory.Store]. The row of the last change may be written only
// with the next one; the record has it as well.
func (s *MongoDB) Audit(ctx context.Context, namespace, key string) ([]memory.Entry, error) {
	stands, err := s.look(ctx, namespace, key)
	if err != nil {
		return nil, fmt.Errorf("audit of memory: %w", err)
	}
	found, err := s.changes.Find(ctx, rowsOf(namespace, key), options.Find().SetSort(bson.D{{Key: "revision", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("audit of memory: %w", err)
	}
	var rows []row
	if err := found.All(ctx, &rows); err != nil {
		return nil, fmt.Errorf("audit of memory: %w", err)
	}
	if n := len(rows); stands.Revision > 0 && (n == 0 || rows[n-1].Revision < stands.Revision) {
		rows = append(rows, stands.row())
	}
	out := make([]memory.Entry, 0, len(rows))
	for _, r := range rows {
		rec, err := r.record(key)
		if err != nil {
			return nil, fmt.Errorf("audit of memory: %w", err)
		}
		out = append(out, memory.Entry{ID: r.ID, Operation: memory.Operation(r.Operation), Record: rec})
	}
	return out, nil
}
