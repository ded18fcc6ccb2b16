package mongostore

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/mongodbstore"
)

// maxChunks bounds one read of chunks.
const maxChunks = 64

type chunk struct {
	ID    string `bson:"_id"`
	RunID string `bson:"run"`
	First int64  `bson:"first"`
	Next  int64  `bson:"next"`
	Doc   []byte `bson:"doc"`
}

// PutChunk implements binding.Log.
func (s *Store) PutChunk(ctx context.Context, c binding.Chunk) (stands binding.Chunk, err error) {
	doc, err := encode(c)
	if err != nil {
		return binding.Chunk{}, err
	}
	id := fmt.Sprintf("%s/%020d", c.RunID, signed(c.First))
	_, err = s.chunks.InsertOne(ctx, chunk{ID: id, RunID: c.RunID, First: signed(c.First), Next: signed(c.Next()), Doc: doc})
	if err == nil {
		err = decode(doc, &stands)
		return stands, err
	}
	if !mongo.IsDuplicateKeyError(err) {
		return binding.Chunk{}, storeError(ctx, "insert", err)
	}
	var now chunk
	if err := s.chunks.FindOne(ctx, bson.D{is("_id", id)}).Decode(&now); err != nil {
		return binding.Chunk{}, storeError(ctx, "read", err)
	}
	err = decode(now.Doc, &stands)
	return stands, err
}

// Chunks implements binding.Log. A read has at most 64.
func (s *Store) Chunks(ctx context.Context, runID string, from uint64, limit int) ([]binding.Chunk, error) {
	found, err := s.chunks.Find(ctx, bson.D{is("run", runID), is("next", bson.D{is("$gt", signed(from))})},
		options.Find().SetSort(only("first")).SetLimit(int64(min(limit, maxChunks))))
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	var cs []chunk
	if err := found.All(ctx, &cs); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	out := make([]binding.Chunk, len(cs))
	for i, c := range cs {
		if err := decode(c.Doc, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type runDocument struct {
	ID        string `bson:"_id"`
	BindingID string `bson:"binding"`
	Doc       []byte `bson:"doc"`
	EndedAt   int64  `bson:"ended_at"` // Unix microseconds
	// Forgotten is set before the first chunk goes, and LogKept taken away after the last.
	Forgotten bool `bson:"forgotten"`
	LogKept   bool `bson:"log_kept"`
}

// PutRun implements binding.RunDocuments.
func (s *Store) PutRun(ctx context.Context, d binding.RunDocument) error {
	doc, err := encode(d)
	if err != nil {
		return err
	}
	_, err = s.runs.InsertOne(ctx, runDocument{ID: d.RunID, BindingID: d.BindingID, Doc: doc, EndedAt: d.EndedAt.UnixMicro(), LogKept: true})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return storeError(ctx, "insert", err)
	}
	return nil
}

// LoadRun implements binding.RunDocuments.
func (s *Store) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	var r runDocument
	if err := s.runs.FindOne(ctx, bson.D{is("_id", runID)}).Decode(&r); err != nil {
		return binding.RunDocument{}, storeError(ctx, "read", err)
	}
	var out binding.RunDocument
	err := decode(r.Doc, &out)
	out.Forgotten = r.Forgotten
	return out, err
}

// EndedRuns implements binding.RunDocuments.
func (s *Store) EndedRuns(ctx context.Context, before time.Time, after binding.EndedRun, limit int) ([]binding.EndedRun, error) {
	from := after.EndedAt.UnixMicro()
	found, err := s.runs.Find(ctx, bson.D{
		is("log_kept", true), is("ended_at", bson.D{is("$gte", from), is("$lt", before.UnixMicro())}),
		is("$or", bson.A{bson.D{is("ended_at", bson.D{is("$gt", from)})}, bson.D{is("_id", bson.D{is("$gt", after.RunID)})}}),
	}, options.Find().SetSort(only("ended_at", "_id")).SetLimit(int64(limit)).SetProjection(only("binding", "ended_at")))
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	var all []runDocument
	if err := found.All(ctx, &all); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	out := make([]binding.EndedRun, len(all))
	for i, r := range all {
		out[i] = binding.EndedRun{RunID: r.ID, BindingID: r.BindingID, EndedAt: time.UnixMicro(r.EndedAt).UTC()}
	}
	return out, nil
}

// ForgetLog implements binding.RunDocuments.
func (s *Store) ForgetLog(ctx context.Context, runID string) error {
	res, err := s.runs.UpdateOne(ctx, bson.D{is("_id", runID)}, set(bson.D{is("forgotten", true)}))
	if err == nil && res.MatchedCount == 0 {
		return binding.ErrNotFound
	}
	if err == nil {
		_, err = s.chunks.DeleteMany(ctx, bson.D{is("run", runID)})
	}
	if err == nil {
		_, err = s.runs.UpdateOne(ctx, bson.D{is("_id", runID)}, set(bson.D{is("log_kept", false)}))
	}
	if err != nil {
		return storeError(ctx, "forget", err)
	}
	return nil
}

// noteEnds gives the documents of an older program what EndedRuns looks for.
func noteEnds(ctx context.Context, db *mongodbstore.DB) error {
	c := db.Collection(runs)
	found, err := c.Find(ctx, bson.D{is("log_kept", bson.D{is("$exists", false)})})
	if err != nil {
		return storeError(ctx, "read", err)
	}
	defer func() { _ = found.Close(context.WithoutCancel(ctx)) }() // Err has what there is to say
	for found.Next(ctx) {
		var (
			r runDocument
			d binding.RunDocument
		)
		if err := found.Decode(&r); err != nil {
			return storeError(ctx, "read", err)
		}
		if err := decode(r.Doc, &d); err != nil {
			return err
		}
		ends := set(bson.D{is("ended_at", d.EndedAt.UnixMicro()), is("log_kept", true)})
		if _, err := c.UpdateOne(ctx, bson.D{is("_id", r.ID), is("log_kept", bson.D{is("$exists", false)})}, ends); err != nil {
			return storeError(ctx, "note the end", err)
		}
	}
	if err := found.Err(); err != nil {
		return storeError(ctx, "read", err)
	}
	return nil
}

// signed is a sequence as BSON has integers; no log is that long.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
