package bindingtest

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
)

// ErrLost is what the caller of a Tap gets where a request or a reply is lost.
var ErrLost = errors.New("bindingtest: the store did not answer")

// Fate of one call to a store.
type Fate int

// What can happen to a call.
const (
	// Deliver lets it happen.
	Deliver Fate = iota
	// LoseRequest answers ErrLost, and nothing happens.
	LoseRequest
	// LoseReply answers ErrLost after it happened.
	LoseReply
)

// Tap stands before a real back end. On is called before each call, by the name
// of the method, and says what becomes of it; it may do something itself before
// it returns, as another process could between two instructions.
type Tap struct {
	To binding.Backend
	On func(op string) Fate
}

var _ binding.Backend = Tap{}

func through[T any](t Tap, op string, do func() (T, error)) (T, error) {
	var none T
	switch t.On(op) {
	case LoseRequest:
		return none, ErrLost
	case LoseReply:
		_, _ = do()
		return none, ErrLost
	case Deliver:
	}
	return do()
}

// Close implements binding.Backend.
func (t Tap) Close() error { return t.To.Close() }

// Insert implements binding.Records.
func (t Tap) Insert(ctx context.Context, r binding.Record) (stands binding.Record, inserted bool, err error) {
	stands, err = through(t, "Insert", func() (s binding.Record, err error) {
		s, inserted, err = t.To.Insert(ctx, r)
		return s, err
	})
	return stands, inserted && err == nil, err
}

// Load implements binding.Records.
func (t Tap) Load(ctx context.Context, bindingID string) (binding.Record, error) {
	return through(t, "Load", func() (binding.Record, error) { return t.To.Load(ctx, bindingID) })
}

// Update implements binding.Records.
func (t Tap) Update(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	return through(t, "Update", func() (binding.Record, error) { return t.To.Update(ctx, bindingID, f, change) })
}

// Committed implements binding.Records.
func (t Tap) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	return through(t, "Committed", func() (fence.Committed, error) { return t.To.Committed(ctx, bindingID) })
}

// FindRun implements binding.Records.
func (t Tap) FindRun(ctx context.Context, runID string) (string, error) {
	return through(t, "FindRun", func() (string, error) { return t.To.FindRun(ctx, runID) })
}

// List implements binding.Records.
func (t Tap) List(ctx context.Context, after string, limit int, busy bool) ([]binding.Record, error) {
	return through(t, "List", func() ([]binding.Record, error) { return t.To.List(ctx, after, limit, busy) })
}

// PutChunk implements binding.Log.
func (t Tap) PutChunk(ctx context.Context, c binding.Chunk) (binding.Chunk, error) {
	return through(t, "PutChunk", func() (binding.Chunk, error) { return t.To.PutChunk(ctx, c) })
}

// Chunks implements binding.Log.
func (t Tap) Chunks(ctx context.Context, runID string, from uint64, limit int) ([]binding.Chunk, error) {
	return through(t, "Chunks", func() ([]binding.Chunk, error) { return t.To.Chunks(ctx, runID, from, limit) })
}

// PutRun implements binding.RunDocuments.
func (t Tap) PutRun(ctx context.Context, d binding.RunDocument) error {
	_, err := through(t, "PutRun", func() (struct{}, error) { return struct{}{}, t.To.PutRun(ctx, d) })
	return err
}

// LoadRun implements binding.RunDocuments.
func (t Tap) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	return through(t, "LoadRun", func() (binding.RunDocument, error) { return t.To.LoadRun(ctx, runID) })
}

// EndedRuns implements binding.RunDocuments.
func (t Tap) EndedRuns(ctx context.Context, before time.Time, after binding.EndedRun, limit int) ([]binding.EndedRun, error) {
	return through(t, "EndedRuns", func() ([]binding.EndedRun, error) { return t.To.EndedRuns(ctx, before, after, limit) })
}

// ForgetLog implements binding.RunDocuments.
func (t Tap) ForgetLog(ctx context.Context, runID string) error {
	_, err := through(t, "ForgetLog", func() (struct{}, error) { return struct{}{}, t.To.ForgetLog(ctx, runID) })
	return err
}

// InsertRow implements binding.Ledger.
func (t Tap) InsertRow(ctx context.Context, r binding.Row) (binding.Row, error) {
	return through(t, "InsertRow", func() (binding.Row, error) { return t.To.InsertRow(ctx, r) })
}

// SettleRow implements binding.Ledger.
func (t Tap) SettleRow(ctx context.Context, key binding.RowKey, nonce string, to binding.RowState, outcome []byte) (bool, error) {
	return through(t, "SettleRow", func() (bool, error) { return t.To.SettleRow(ctx, key, nonce, to, outcome) })
}

// LoadRow implements binding.Ledger.
func (t Tap) LoadRow(ctx context.Context, key binding.RowKey) (binding.Row, error) {
	return through(t, "LoadRow", func() (binding.Row, error) { return t.To.LoadRow(ctx, key) })
}

// Rows implements binding.Ledger.
func (t Tap) Rows(ctx context.Context, bindingID string, epoch uint32, runID string) ([]binding.Row, error) {
	return through(t, "Rows", func() ([]binding.Row, error) { return t.To.Rows(ctx, bindingID, epoch, runID) })
}
