package keystore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/capability/internal/signingkey"
)

const (
	collection = "capability_keys"
	component  = "capability_key"
	documentID = "signing"
)

// MongoDB keeps the document in a MongoDB database, which other collections may
// share.
type MongoDB struct {
	db   *mongodbstore.DB
	keys *mongo.Collection
}

var _ signingkey.Store = (*MongoDB)(nil)

// OpenMongoDB takes the database over: Close closes it.
func OpenMongoDB(ctx context.Context, db *mongodbstore.DB) (*MongoDB, error) {
	if err := db.Migrate(ctx, component, []mongodbstore.Step{{}}); err != nil {
		return nil, err
	}
	return &MongoDB{db: db, keys: db.Collection(collection)}, nil
}

// Close closes the database.
func (m *MongoDB) Close() error { return m.db.Close() }

// kept is the document as it is stored. Its body is binary, so that nothing of it
// is for the database to look into.
type kept struct {
	ID       string `bson:"_id"`
	Revision int64  `bson:"revision"`
	Body     []byte `bson:"body"`
}

// LoadKeys implements signingkey.Store.
func (m *MongoDB) LoadKeys(ctx context.Context) (revision uint64, body []byte, err error) {
	var k kept
	err = m.keys.FindOne(ctx, bson.D{{Key: "_id", Value: documentID}}).Decode(&k)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return 0, nil, nil
	case err != nil:
		return 0, nil, fmt.Errorf("load keys: %w", err)
	case k.Revision < 1:
		return 0, nil, errors.New("load keys: the document has no revision")
	}
	return uint64(k.Revision), k.Body, nil
}

// ReplaceKeys implements signingkey.Store.
func (m *MongoDB) ReplaceKeys(ctx context.Context, expected uint64, body []byte) (done bool, err error) {
	k := kept{ID: documentID, Revision: int64(expected) + 1, Body: body} //nolint:gosec // a revision rises by one at a time
	if expected == 0 {
		switch _, err := m.keys.InsertOne(ctx, k); {
		case mongo.IsDuplicateKeyError(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("replace keys: %w", err)
		}
		return true, nil
	}
	res, err := m.keys.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: documentID}, {Key: "revision", Value: k.Revision - 1}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "revision", Value: k.Revision}, {Key: "body", Value: body}}}})
	if err != nil {
		return false, fmt.Errorf("replace keys: %w", err)
	}
	return res.MatchedCount == 1, nil
}
