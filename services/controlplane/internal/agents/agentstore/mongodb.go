package agentstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/controlplane/internal/agents"
)

const collection = "agent_versions"

// MongoDB keeps versions in a MongoDB database, which other collections may share.
type MongoDB struct {
	*mongodbstore.DB

	versions *mongo.Collection
}

var _ Store = MongoDB{}

// OpenMongoDB takes the database over: Close closes it.
func OpenMongoDB(ctx context.Context, db *mongodbstore.DB) (MongoDB, error) {
	index := mongodbstore.Index{Collection: collection, Keys: bson.D{{Key: "agent_id", Value: 1}, {Key: "version", Value: -1}}}
	if err := db.Migrate(ctx, component, []mongodbstore.Step{{Indexes: []mongodbstore.Index{index}}}); err != nil {
		return MongoDB{}, err
	}
	return MongoDB{db, db.Collection(collection)}, nil
}

// kept is a version as it is stored. An agent's id has no "@", so that no two
// versions have one _id. The body is binary: nothing of it is for the database to
// look into.
type kept struct {
	ID      string `bson:"_id"`
	AgentID string `bson:"agent_id"`
	Version int64  `bson:"version"`
	Digest  string `bson:"digest"`
	Body    []byte `bson:"body,omitempty"`
	MadeAt  int64  `bson:"made_at"` // nanoseconds since 1970
}

func (k kept) number() uint32 { return uint32(k.Version) } //nolint:gosec // it was written from one

func key(id string, version uint32) bson.D {
	return bson.D{{Key: "_id", Value: id + "@" + strconv.FormatUint(uint64(version), 10)}}
}

func of(id string) bson.D { return bson.D{{Key: "agent_id", Value: id}} }

// newestFirst is an order that the index has.
func newestFirst() bson.D { return bson.D{{Key: "agent_id", Value: 1}, {Key: "version", Value: -1}} }

// withoutBody leaves the largest part away.
func withoutBody() bson.D { return bson.D{{Key: "body", Value: 0}} }

// Newest implements agents.Store.
func (m MongoDB) Newest(ctx context.Context, id string) (agents.Newest, error) {
	var k kept
	err := m.versions.FindOne(ctx, of(id), options.FindOne().SetSort(newestFirst()).SetProjection(withoutBody())).Decode(&k)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return agents.Newest{}, fmt.Errorf("newest version: %w", err)
	}
	return agents.Newest{ID: id, Version: k.number(), Digest: k.Digest}, nil
}

// Load implements agents.Store.
func (m MongoDB) Load(ctx context.Context, id string, version uint32) (agents.Record, error) {
	var k kept
	err := m.versions.FindOne(ctx, key(id, version)).Decode(&k)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return agents.Record{}, agents.ErrNoVersion
	case err != nil:
		return agents.Record{}, fmt.Errorf("load version: %w", err)
	}
	return agents.Record{ID: id, Version: version, Digest: k.Digest, Body: k.Body, At: time.Unix(0, k.MadeAt).UTC()}, nil
}

// Insert implements agents.Store.
func (m MongoDB) Insert(ctx context.Context, r agents.Record) (made bool, err error) {
	id, _ := key(r.ID, r.Version)[0].Value.(string)
	_, err = m.versions.InsertOne(ctx, kept{id, r.ID, int64(r.Version), r.Digest, r.Body, r.At.UnixNano()})
	switch {
	case mongo.IsDuplicateKeyError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("insert version: %w", err)
	}
	return true, nil
}

// List implements agents.Store. Old versions are read and left out: an agent has a
// few.
func (m MongoDB) List(ctx context.Context, limit int) (out []agents.Newest, err error) {
	err = m.each(ctx, bson.D{}, func(k kept) (more bool) {
		if len(out) > 0 && out[len(out)-1].ID == k.AgentID {
			return true
		}
		if len(out) == limit {
			return false
		}
		out = append(out, agents.Newest{ID: k.AgentID, Version: k.number(), Digest: k.Digest})
		return true
	})
	return out, err
}

// Digests implements agents.Store.
func (m MongoDB) Digests(ctx context.Context, id string) (map[string]uint32, error) {
	out := map[string]uint32{}
	err := m.each(ctx, of(id), func(k kept) bool {
		out[k.Digest] = max(out[k.Digest], k.number())
		return true
	})
	return out, err
}

func (m MongoDB) each(ctx context.Context, filter bson.D, yield func(kept) (more bool)) error {
	found, err := m.versions.Find(ctx, filter, options.Find().SetSort(newestFirst()).SetProjection(withoutBody()))
	if err != nil {
		return fmt.Errorf("versions: %w", err)
	}
	defer func() { _ = found.Close(context.WithoutCancel(ctx)) }() // only reads
	for found.Next(ctx) {
		var k kept
		if err := found.Decode(&k); err != nil {
			return fmt.Errorf("versions: %w", err)
		}
		if !yield(k) {
			return nil
		}
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("versions: %w", err)
	}
	return nil
}
