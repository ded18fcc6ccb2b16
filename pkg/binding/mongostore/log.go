package mongostore

import (
	"context"
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/binding"
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
}

// PutRun implements binding.RunDocuments.
func (s *Store) PutRun(ctx context.Context, d binding.RunDocument) error {
	doc, err := encode(d)
	if err != nil {
		return err
	}
	_, err = s.runs.InsertOne(ctx, runDocument{ID: d.RunID, BindingID: d.BindingID, Doc: doc})
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
	return out, err
}

// signed is a sequence as BSON has integers; no log is that long.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
