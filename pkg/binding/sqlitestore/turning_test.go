package sqlitestore_test

import (
	"context"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
)

// turning gives each call to the next of its back ends.
type turning struct{ turns chan binding.Backend }

func (s turning) next() binding.Backend {
	b := <-s.turns
	s.turns <- b
	return b
}

func (turning) Close() error { return nil }

func (s turning) Insert(ctx context.Context, r binding.Record) (binding.Record, bool, error) {
	return s.next().Insert(ctx, r)
}

func (s turning) Load(ctx context.Context, id string) (binding.Record, error) {
	return s.next().Load(ctx, id)
}

func (s turning) Update(ctx context.Context, id string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	return s.next().Update(ctx, id, f, change)
}

func (s turning) Committed(ctx context.Context, id string) (fence.Committed, error) {
	return s.next().Committed(ctx, id)
}

func (s turning) FindRun(ctx context.Context, runID string) (string, error) {
	return s.next().FindRun(ctx, runID)
}

func (s turning) List(ctx context.Context, after string, limit int, busy bool) ([]binding.Record, error) {
	return s.next().List(ctx, after, limit, busy)
}

func (s turning) PutChunk(ctx context.Context, c binding.Chunk) (binding.Chunk, error) {
	return s.next().PutChunk(ctx, c)
}

func (s turning) Chunks(ctx context.Context, runID string, from uint64, limit int) ([]binding.Chunk, error) {
	return s.next().Chunks(ctx, runID, from, limit)
}

func (s turning) PutRun(ctx context.Context, d binding.RunDocument) error {
	return s.next().PutRun(ctx, d)
}

func (s turning) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	return s.next().LoadRun(ctx, runID)
}

func (s turning) EndedRuns(ctx context.Context, before time.Time, after binding.EndedRun, limit int) ([]binding.EndedRun, error) {
	return s.next().EndedRuns(ctx, before, after, limit)
}

func (s turning) ForgetLog(ctx context.Context, runID string) error {
	return s.next().ForgetLog(ctx, runID)
}

func (s turning) InsertRow(ctx context.Context, r binding.Row) (binding.Row, error) {
	return s.next().InsertRow(ctx, r)
}

func (s turning) SettleRow(ctx context.Context, k binding.RowKey, nonce string, to binding.RowState, outcome []byte) (bool, error) {
	return s.next().SettleRow(ctx, k, nonce, to, outcome)
}

func (s turning) LoadRow(ctx context.Context, k binding.RowKey) (binding.Row, error) {
	return s.next().LoadRow(ctx, k)
}

func (s turning) Rows(ctx context.Context, id string, epoch uint32, runID string) ([]binding.Row, error) {
	return s.next().Rows(ctx, id, epoch, runID)
}
