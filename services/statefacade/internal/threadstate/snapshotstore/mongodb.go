package snapshotstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

const snapshotsName = "thread_snapshots"

// schema of the collections, which all begin with thread_. A run is a scope, whose
// slots are the bound of its snapshots.
func schema() []mongodbstore.Step {
	return []mongodbstore.Step{{Indexes: []mongodbstore.Index{
		mongodbstore.SlotIndex(snapshotsName),
		{Collection: snapshotsName, Keys: bson.D{{Key: "binding", Value: 1}, {Key: "created_at", Value: 1}}},
		{Collection: snapshotsName, Keys: bson.D{{Key: "settled", Value: 1}, {Key: "binding", Value: 1}, {Key: "created_at", Value: 1}}},
	}}}
}

// MongoDB keeps snapshots in one database, each in a document.
type MongoDB struct {
	db        *mongodbstore.DB
	snapshots *mongo.Collection
}

var _ threadstate.Snapshots = (*MongoDB)(nil)

// OpenMongoDB makes the indexes and checks the version of what is there. Close
// closes db.
func OpenMongoDB(ctx context.Context, db *mongodbstore.DB) (*MongoDB, error) {
	if err := db.Migrate(ctx, component, schema()); err != nil {
		return nil, fmt.Errorf("open %s store: %w", component, err)
	}
	return &MongoDB{db: db, snapshots: db.Collection(snapshotsName)}, nil
}

// Close gives the connections up.
func (s *MongoDB) Close() error { return s.db.Close() }

// Check asks whether the database answers, with the version that is known here.
func (s *MongoDB) Check(ctx context.Context) error { return s.db.Check(ctx) }

// document is the stored form of a snapshot.
type document struct {
	Ref          string `bson:"_id"`
	Scope        string `bson:"scope"` // of mongodbstore.SlotIndex
	Slot         int32  `bson:"slot"`
	BindingID    string `bson:"binding"`
	Epoch        int64  `bson:"epoch"`
	Generation   int64  `bson:"generation"`
	RunID        string `bson:"run"`
	Codec        string `bson:"codec"`
	CodecVersion int64  `bson:"codec_version"`
	Size         int64  `bson:"size"`
	SHA256       []byte `bson:"sha256"`
	Blob         string `bson:"blob"`
	Payload      []byte `bson:"payload"`
	Confirmed    bool   `bson:"confirmed"`
	Settled      bool   `bson:"settled"`
	CreatedAt    int64  `bson:"created_at"` // Unix microseconds
}

func byRef(ref string) bson.D { return bson.D{{Key: "_id", Value: ref}} }

func (d document) entry() (threadstate.Entry, error) {
	e := threadstate.Entry{Blob: d.Blob, Confirmed: d.Confirmed, At: time.UnixMicro(d.CreatedAt), Info: threadstate.Info{
		Ref:     d.Ref,
		Owner:   threadstate.Owner{BindingID: d.BindingID, Epoch: uint32(d.Epoch), Generation: uint32(d.Generation), RunID: d.RunID}, //nolint:gosec // written from a uint32
		Codec:   threadstate.Codec{Name: d.Codec, Version: uint32(d.CodecVersion)},                                                   //nolint:gosec // written from a uint32
		Content: blob.Content{Size: d.Size},
	}}
	if copy(e.SHA256[:], d.SHA256) != len(e.SHA256) || len(d.SHA256) != len(e.SHA256) {
		return threadstate.Entry{}, errors.New("find snapshot: digest is damaged")
	}
	return e, nil
}

// Stage implements [threadstate.Snapshots]. One that is there already may be what
// this very call inserted, repeated by the driver.
func (s *MongoDB) Stage(ctx context.Context, snap threadstate.Snapshot, most int) (threadstate.Entry, error) {
	o := snap.Owner
	d := document{
		Ref: snap.Ref, Scope: o.BindingID + "/" + strconv.FormatUint(uint64(o.Epoch), 10) + "/" + o.RunID,
		BindingID: o.BindingID, Epoch: int64(o.Epoch), Generation: int64(o.Generation), RunID: o.RunID,
		Codec: snap.Codec.Name, CodecVersion: int64(snap.Codec.Version), Size: snap.Size, SHA256: snap.SHA256[:],
		Blob: snap.Blob, Payload: snap.Payload, CreatedAt: snap.At.UnixMicro(),
	}
	_, err := mongodbstore.InsertInSlot(ctx, s.snapshots, byRef(snap.Ref), d.Scope, most, func(slot int32) any {
		d.Slot = slot
		return d
	})
	switch {
	case errors.Is(err, mongodbstore.ErrNoSlot):
		return threadstate.Entry{}, fmt.Errorf("stage snapshot: %w", threadstate.ErrFull)
	case err != nil:
		return threadstate.Entry{}, fmt.Errorf("stage snapshot: %w", err)
	}
	stands, err := s.find(ctx, byRef(snap.Ref), withoutPayload())
	if err != nil {
		return threadstate.Entry{}, err
	}
	return stands.entry()
}

func withoutPayload() bson.D { return bson.D{{Key: "payload", Value: 0}} }

// Confirm implements [threadstate.Snapshots].
func (s *MongoDB) Confirm(ctx context.Context, ref string) error {
	res, err := s.snapshots.UpdateOne(ctx, byRef(ref), bson.D{{Key: "$set", Value: bson.D{{Key: "confirmed", Value: true}}}})
	if err == nil && res.MatchedCount == 0 {
		err = threadstate.ErrNoSnapshot
	}
	if err != nil {
		return fmt.Errorf("confirm snapshot: %w", err)
	}
	return nil
}

// Drop implements [threadstate.Snapshots].
func (s *MongoDB) Drop(ctx context.Context, ref string) error {
	if _, err := s.snapshots.DeleteOne(ctx, append(byRef(ref), bson.E{Key: "confirmed", Value: false})); err != nil {
		return fmt.Errorf("drop snapshot: %w", err)
	}
	return nil
}

// Stat implements [threadstate.Snapshots].
func (s *MongoDB) Stat(ctx context.Context, ref string) (threadstate.Entry, error) {
	d, err := s.find(ctx, confirmed(ref), withoutPayload())
	if err != nil {
		return threadstate.Entry{}, err
	}
	return d.entry()
}

// Load implements [threadstate.Snapshots].
func (s *MongoDB) Load(ctx context.Context, ref string) (threadstate.Snapshot, error) {
	d, err := s.find(ctx, confirmed(ref), bson.D{})
	if err != nil {
		return threadstate.Snapshot{}, err
	}
	e, err := d.entry()
	return threadstate.Snapshot{Entry: e, Payload: d.Payload}, err
}

func confirmed(ref string) bson.D { return append(byRef(ref), bson.E{Key: "confirmed", Value: true}) }

func (s *MongoDB) find(ctx context.Context, filter, projection bson.D) (d document, err error) {
	err = s.snapshots.FindOne(ctx, filter, options.FindOne().SetProjection(projection)).Decode(&d)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return document{}, threadstate.ErrNoSnapshot
	case err != nil:
		return document{}, fmt.Errorf("find snapshot: %w", err)
	}
	return d, nil
}
