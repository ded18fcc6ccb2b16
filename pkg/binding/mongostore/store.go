// Package mongostore keeps bindings in MongoDB: the production back end of
// package binding.
//
// A record is one document: its JSON as binary beside what filters and indexes
// need. Its update names id, version, epoch, generation and run, so a write that
// was sent long ago matches the very record that its change saw, or nothing.
// Ledger rows, chunks and run documents are unique inserts.
package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/mongodbstore"
)

const (
	component = "binding"

	bindings = "bindings"
	chunks   = "chunks"
	runs     = "runs"
	ledger   = "ledger"
)

// schema: the indexes keep every read flat that does not name an _id: which record
// has a run, which records are busy, the rows of one run, and the runs whose log is
// kept.
func schema() []mongodbstore.Step {
	return []mongodbstore.Step{{Indexes: []mongodbstore.Index{
		{Collection: bindings, Keys: bson.D{{Key: "live", Value: 1}}},
		{Collection: bindings, Keys: bson.D{{Key: "busy", Value: 1}, {Key: "_id", Value: 1}}},
		{Collection: chunks, Keys: bson.D{{Key: "run", Value: 1}, {Key: "first", Value: 1}}, Unique: true},
		{Collection: ledger, Keys: bson.D{{Key: "scope", Value: 1}, {Key: "key", Value: 1}}, Unique: true},
	}}, {Indexes: []mongodbstore.Index{
		{Collection: runs, Keys: bson.D{{Key: "log_kept", Value: 1}, {Key: "ended_at", Value: 1}, {Key: "_id", Value: 1}}},
	}, Apply: noteEnds}}
}

// Store is a binding.Backend on one database. It is safe for concurrent use,
// also beside other Stores on the same database.
type Store struct {
	db                             *mongodbstore.DB
	bindings, chunks, runs, ledger *mongo.Collection
}

var _ binding.Backend = (*Store)(nil)

// Open makes the indexes and checks the version of what is there. Close closes
// db.
func Open(ctx context.Context, db *mongodbstore.DB) (*Store, error) {
	if err := db.Migrate(ctx, component, schema()); err != nil {
		return nil, fmt.Errorf("mongostore: %w", err)
	}
	return &Store{
		db: db, bindings: db.Collection(bindings), chunks: db.Collection(chunks), runs: db.Collection(runs), ledger: db.Collection(ledger),
	}, nil
}

// Check asks whether the database answers, and still has the version that this
// program knows.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }

// Close gives the connections up.
func (s *Store) Close() error { return s.db.Close() }

// storeError names the step, and keeps the context's own error in view.
func storeError(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return binding.ErrNotFound
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("mongostore: %s: %w: %w", step, ctx.Err(), err)
	default:
		return fmt.Errorf("mongostore: %s: %w", step, err)
	}
}

func is(field string, value any) bson.E { return bson.E{Key: field, Value: value} }

func set(fields bson.D) bson.D { return bson.D{is("$set", fields)} }

// only are the fields that a read wants.
func only(fields ...string) bson.D {
	d := make(bson.D, len(fields))
	for i, f := range fields {
		d[i] = is(f, 1)
	}
	return d
}
