package sqlitestore

import (
	"context"
	"math"
	"time"

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
		_, err := t.exec(s.q[insertRun], d.RunID, d.BindingID, doc, d.EndedAt.UnixMicro())
		return err
	})
}

// LoadRun implements binding.RunDocuments.
func (s *Store) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	var (
		raw  []byte
		kept bool
		d    binding.RunDocument
	)
	if err := s.q[loadRun].QueryRowContext(ctx, runID).Scan(&raw, &kept); err != nil {
		return d, storeError(ctx, "read", err)
	}
	err := decode(raw, &d)
	d.Forgotten = !kept
	return d, err
}

// EndedRuns implements binding.RunDocuments.
func (s *Store) EndedRuns(ctx context.Context, before time.Time, after binding.EndedRun, limit int) (out []binding.EndedRun, err error) {
	rows, err := s.q[listEnded].QueryContext(ctx, before.UnixMicro(), after.EndedAt.UnixMicro(), after.RunID, limit)
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	defer func() { _ = rows.Close() }() // Err has what there is to say
	for rows.Next() {
		var (
			run binding.EndedRun
			at  int64
		)
		if err := rows.Scan(&run.RunID, &run.BindingID, &at); err != nil {
			return nil, storeError(ctx, "read", err)
		}
		run.EndedAt = time.UnixMicro(at).UTC()
		out = append(out, run)
	}
	if err := rows.Err(); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	return out, nil
}

// ForgetLog implements binding.RunDocuments.
func (s *Store) ForgetLog(ctx context.Context, runID string) error {
	return s.write(ctx, func(t *tx) error {
		if n, err := t.exec(s.q[forgetRun], runID); err != nil {
			return err
		} else if n == 0 {
			return binding.ErrNotFound
		}
		_, err := t.exec(s.q[dropChunks], runID)
		return err
	})
}

// signed is a sequence as SQLite has integers; no log is that long.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
