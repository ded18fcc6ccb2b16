package memorystore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/statefacade/internal/memory"
)

const (
	recordsName = "memory_records"
	changesName = "memory_changes"
	// overtaken is how often a put is tried again that another one overtook.
	overtaken = 256
)

// schema of the collections, which all begin with memory_. A namespace is a scope,
// whose slots are the bound of its records.
func schema() []mongodbstore.Step {
	return []mongodbstore.Step{{Indexes: []mongodbstore.Index{
		mongodbstore.SlotIndex(recordsName),
		{Collection: changesName, Keys: bson.D{{Key: "namespace", Value: 1}, {Key: "key", Value: 1}, {Key: "revision", Value: 1}}},
	}}}
}

// MongoDB keeps memory in one database.
//
// A record is one document, and what decides is the one write that puts the next
// revision into it. That write carries the change's ID; the row of the change is
// written after it, and at the latest by whoever is to put another revision over
// it, before. So a change was made if it stands in the record or in the rows, and
// an acknowledged change has its row.
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

// document is the stored form of a record.
type document struct {
	ID          string `bson:"_id"`
	Namespace   string `bson:"scope"` // of mongodbstore.SlotIndex
	Slot        int32  `bson:"slot"`
	Key         string `bson:"key"`
	Kind        string `bson:"kind"`
	ContentType string `bson:"content_type"`
	Content     []byte `bson:"content"`
	Revision    int64  `bson:"revision"`
	SHA256      []byte `bson:"sha256"`
	UpdatedAt   int64  `bson:"updated_at"` // Unix microseconds
	Origin      origin `bson:"origin"`
	// Change is the ID of the change that made the revision.
	Change string `bson:"change"`
}

// row is the stored form of a change, without its content.
type row struct {
	ID        string `bson:"_id"`
	Namespace string `bson:"namespace"`
	Key       string `bson:"key"`
	Revision  int64  `bson:"revision"`
	SHA256    []byte `bson:"sha256"`
	At        int64  `bson:"at"` // Unix microseconds
	Origin    origin `bson:"origin"`
}

type origin struct {
	BindingID  string `bson:"binding"`
	Epoch      int64  `bson:"epoch"`
	Generation int64  `bson:"generation"`
	RunID      string `bson:"run"`
	Writer     string `bson:"writer"`
	Previous   int64  `bson:"previous"`
}

// recordID: a namespace has no slash.
func recordID(namespace, key string) string { return namespace + "/" + key }

func byID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

// made is the document after a change.
func made(c memory.Change) document {
	r, o := c.Record, c.Record.Origin
	return document{
		ID: recordID(c.Namespace, r.Key), Namespace: c.Namespace, Key: r.Key, Kind: string(r.Kind), ContentType: r.ContentType, Content: r.Content,
		Revision: signed(c.Expected) + 1, SHA256: r.SHA256[:], UpdatedAt: r.UpdatedAt.UnixMicro(), Change: c.ID,
		Origin: origin{
			BindingID: o.BindingID, Epoch: int64(o.Epoch), Generation: int64(o.Generation), RunID: o.RunID, Writer: o.Writer, Previous: signed(c.Expected),
		},
	}
}

func (d document) record() (memory.Record, error) {
	r := memory.Record{
		Key: d.Key, Kind: memory.Kind(d.Kind), ContentType: d.ContentType, Content: d.Content, Revision: uint64(d.Revision), //nolint:gosec // never negative
		UpdatedAt: time.UnixMicro(d.UpdatedAt).UTC(),
		Origin: memory.Origin{
			BindingID: d.Origin.BindingID, Epoch: uint32(d.Origin.Epoch), Generation: uint32(d.Origin.Generation), RunID: d.Origin.RunID, //nolint:gosec // written from a uint32
			Writer: d.Origin.Writer, Previous: uint64(d.Origin.Previous), //nolint:gosec // never negative
		},
	}
	if copy(r.SHA256[:], d.SHA256) != len(r.SHA256) || len(d.SHA256) != len(r.SHA256) {
		return memory.Record{}, errors.New("get memory: digest is damaged")
	}
	return r, nil
}

// signed is a revision as BSON has integers; none is that high.
func signed(n uint64) int64 { return int64(min(n, 1<<62)) }

// Get implements [memory.Store].
func (s *MongoDB) Get(ctx context.Context, namespace, key string) (memory.Record, error) {
	d, err := s.find(ctx, namespace, key)
	if err != nil {
		return memory.Record{}, fmt.Errorf("get memory: %w", err)
	}
	return d.record()
}

func (s *MongoDB) find(ctx context.Context, namespace, key string) (d document, err error) {
	err = s.records.FindOne(ctx, byID(recordID(namespace, key))).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = memory.ErrNotFound
	}
	return d, err
}

// Put implements [memory.Store].
func (s *MongoDB) Put(ctx context.Context, c memory.Change, most int) (revision uint64, err error) {
	for range overtaken {
		revision, done, err := s.put(ctx, c, most)
		if err != nil {
			return 0, fmt.Errorf("put memory: %w", err)
		}
		if done {
			return revision, nil
		}
	}
	return 0, fmt.Errorf("put memory: overtaken %d times", overtaken)
}

func (s *MongoDB) put(ctx context.Context, c memory.Change, most int) (revision uint64, done bool, err error) {
	if revision, done, err = s.changed(ctx, c.ID); done || err != nil {
		return revision, done, err
	}
	stands, err := s.find(ctx, c.Namespace, c.Record.Key)
	switch {
	case err != nil && !errors.Is(err, memory.ErrNotFound):
		return 0, false, err
	case err == nil && stands.Change == c.ID: // made, by an attempt that did not come back
		return uint64(stands.Revision), true, s.keep(ctx, stands) //nolint:gosec // never negative
	case stands.Revision != signed(c.Expected):
		// Made and overtaken since the first look? Then its row stands.
		if revision, done, err = s.changed(ctx, c.ID); done || err != nil {
			return revision, done, err
		}
		return 0, false, memory.ErrRevision
	}
	next := made(c)
	if c.Expected == 0 {
		done, err = s.insert(ctx, next, most)
	} else {
		done, err = s.replace(ctx, stands, next)
	}
	if !done || err != nil {
		return 0, false, err
	}
	return c.Expected + 1, true, s.keep(ctx, next)
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
	return uint64(r.Revision), true, nil //nolint:gosec // never negative
}

// insert makes a record that is not there. One that is there may be what this very
// call inserted, repeated by the driver: the next look tells.
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
	next.Slot = stands.Slot
	res, err := s.records.ReplaceOne(ctx, append(byID(next.ID),
		bson.E{Key: "revision", Value: stands.Revision}, bson.E{Key: "change", Value: stands.Change}), next)
	if err != nil {
		return false, err
	}
	return res.MatchedCount == 1, nil
}

// keep writes the row of the change that made the document. A repeat is harmless.
func (s *MongoDB) keep(ctx context.Context, d document) error {
	_, err := s.changes.InsertOne(ctx, row{
		ID: d.Change, Namespace: d.Namespace, Key: d.Key, Revision: d.Revision, SHA256: d.SHA256, At: d.UpdatedAt, Origin: d.Origin,
	})
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}
