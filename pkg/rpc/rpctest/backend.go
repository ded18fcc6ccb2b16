package rpctest

import (
	"context"
	"sync"

	"cofferdam.dev/pkg/binding"
)

// Backend is the real store with places to step in: before a write is sent, in
// its place, and after its outcome is there.
type Backend struct {
	binding.Backend

	mu      sync.Mutex
	before  func()
	refused error
	after   func(error) error
}

// BeforeWrite makes f run once, before the next write.
func (b *Backend) BeforeWrite(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = f
}

// RefuseWrites makes every further write fail with err, without being sent. nil
// ends that.
func (b *Backend) RefuseWrites(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = err
}

// AfterWrite makes f decide what the caller is told of every further write,
// given what really happened: a reply can be lost with it. nil ends that.
func (b *Backend) AfterWrite(f func(error) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after = f
}

func (b *Backend) enter() error {
	b.mu.Lock()
	f, err := b.before, b.refused
	b.before = nil
	b.mu.Unlock()
	if f != nil {
		f()
	}
	return err
}

func (b *Backend) leave(err error) error {
	b.mu.Lock()
	f := b.after
	b.mu.Unlock()
	if f != nil {
		return f(err)
	}
	return err
}

// Insert implements binding.Records.
func (b *Backend) Insert(ctx context.Context, r binding.Record) (binding.Record, bool, error) {
	if err := b.enter(); err != nil {
		return binding.Record{}, false, err
	}
	stands, inserted, err := b.Backend.Insert(ctx, r)
	return stands, inserted, b.leave(err)
}

// Update implements binding.Records.
func (b *Backend) Update(ctx context.Context, id string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	if err := b.enter(); err != nil {
		return binding.Record{}, err
	}
	r, err := b.Backend.Update(ctx, id, f, change)
	return r, b.leave(err)
}

// PutChunk implements binding.Log.
func (b *Backend) PutChunk(ctx context.Context, c binding.Chunk) (binding.Chunk, error) {
	if err := b.enter(); err != nil {
		return binding.Chunk{}, err
	}
	stands, err := b.Backend.PutChunk(ctx, c)
	return stands, b.leave(err)
}

// PutRun implements binding.RunDocuments.
func (b *Backend) PutRun(ctx context.Context, d binding.RunDocument) error {
	if err := b.enter(); err != nil {
		return err
	}
	return b.leave(b.Backend.PutRun(ctx, d))
}

// InsertRow implements binding.Ledger.
func (b *Backend) InsertRow(ctx context.Context, r binding.Row) (binding.Row, error) {
	if err := b.enter(); err != nil {
		return binding.Row{}, err
	}
	stands, err := b.Backend.InsertRow(ctx, r)
	return stands, b.leave(err)
}

// SettleRow implements binding.Ledger.
func (b *Backend) SettleRow(ctx context.Context, key binding.RowKey, nonce string, to binding.RowState, outcome []byte) (bool, error) {
	if err := b.enter(); err != nil {
		return false, err
	}
	settled, err := b.Backend.SettleRow(ctx, key, nonce, to, outcome)
	return settled, b.leave(err)
}
