package sqlitestore

import (
	"context"
	"math"

	"cofferdam.dev/pkg/binding"
)

// maxChunks bounds one read of chunks.
const maxChunks = 64

// PutChunk implements binding.Log.
func (s *Store) PutChunk(ctx context.Context, c binding.Chunk) (stands binding.Chunk, err error) {
	doc, err := encode(c)
	if err != nil {
		return binding.Chunk{}, err
	}
	err = s.write(ctx, func(t *tx) error {
		if _, err := t.exec(s.q[insertChunk], c.RunID, signed(c.First), signed(c.Next()), doc); err != nil {
			return err
		}
		var raw []byte
		if err := t.row(s.q[readChunk], c.RunID, signed(c.First)).Scan(&raw); err != nil {
			return storeError(t.ctx, "read", err)
		}
		stands = binding.Chunk{}
		return decode(raw, &stands)
	})
	return stands, err
}

// Chunks implements binding.Log. A read has at most 64.
func (s *Store) Chunks(ctx context.Context, runID string, from uint64, limit int) ([]binding.Chunk, error) {
	return loadDocs[binding.Chunk](ctx, s.q[loadChunks], runID, signed(from), min(limit, maxChunks))
}

// PutRun implements binding.RunDocuments.
func (s *Store) PutRun(ctx context.Context, d binding.RunDocument) error {
	doc, err := encode(d)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		_, err := t.exec(s.q[insertRun], d.RunID, d.BindingID, doc)
		return err
	})
}

// LoadRun implements binding.RunDocuments.
func (s *Store) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	return loadDoc[binding.RunDocument](ctx, s.q[loadRun], runID)
}

// signed is a sequence as SQLite has integers; no log is that long.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
