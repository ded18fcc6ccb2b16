// Package mongostore keeps the catalogue of objects and handles in MongoDB. It
// passes the suite in cataloguetest.
//
// What decides is the insert of a completion, which is unique in its slot and in
// its object: one insert takes the slot and makes the object visible, and an
// object that was dropped has a completion that no slot has. The field visible of
// an object only repeats that, for counting.
//
// A reservation is the object's document itself. The quota is held by a document
// for each binding, which knows the last reservation that was made and moves from
// one to the next: whoever makes the next one sees to it that the last one counts,
// counts, and then moves it on, or begins again where another one was first.
package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/filebroker/internal/files"
)

const (
	component = "file"

	objectsName     = "file_objects"
	completionsName = "file_completions"
	quotasName      = "file_quotas"
	handlesName     = "file_handles"
	uploadsName     = "file_uploads"
	contentsName    = "file_contents"
)

func schema() []mongodbstore.Step {
	return []mongodbstore.Step{{Indexes: []mongodbstore.Index{
		{Collection: objectsName, Keys: bson.D{{Key: "binding", Value: 1}}},
		{Collection: completionsName, Keys: bson.D{{Key: "object", Value: 1}}, Unique: true},
		mongodbstore.SlotIndex(handlesName),
		{Collection: handlesName, Keys: bson.D{{Key: "issue", Value: 1}}, Unique: true},
	}}, {Indexes: []mongodbstore.Index{
		{Collection: handlesName, Keys: bson.D{{Key: "expires_at", Value: 1}}},
		{Collection: uploadsName, Keys: bson.D{{Key: "expires_at", Value: 1}}},
	}}, {Indexes: []mongodbstore.Index{
		{Collection: contentsName, Keys: bson.D{{Key: "referenced", Value: 1}, {Key: "put_at", Value: 1}}},
	}}}
}

// Store is a files.Catalogue on one database. It is safe for concurrent use, also
// beside other Stores on the same database.
type Store struct {
	db                                                       *mongodbstore.DB
	objects, completions, quotas, handles, uploads, contents *mongo.Collection
}

var _ files.Catalogue = (*Store)(nil)

// Open makes the indexes and checks the version of what is there. Close closes
// db.
func Open(ctx context.Context, db *mongodbstore.DB) (*Store, error) {
	if err := db.Migrate(ctx, component, schema()); err != nil {
		return nil, fmt.Errorf("open %s store: %w", component, err)
	}
	return &Store{
		db: db, objects: db.Collection(objectsName), completions: db.Collection(completionsName),
		quotas: db.Collection(quotasName), handles: db.Collection(handlesName), uploads: db.Collection(uploadsName), contents: db.Collection(contentsName),
	}, nil
}

// Close gives the connections up.
func (s *Store) Close() error { return s.db.Close() }

// Check asks whether the database answers, with the version that is known here.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }

func is(field string, value any) bson.E { return bson.E{Key: field, Value: value} }

func set(fields ...bson.E) bson.D { return bson.D{is("$set", bson.D(fields))} }

// named gives an error its step, and missing its own error.
func named(step string, err, missing error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mongo.ErrNoDocuments):
		return missing
	default:
		return fmt.Errorf("%s: %w", step, err)
	}
}
