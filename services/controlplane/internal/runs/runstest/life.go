package runstest

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Life is that of a replica that dies at one write. From then on nothing of it goes
// on: whatever of it asks the store, a provider or a worker ends there and then, as
// in a process that was killed, and its connections to workers are cut.
type Life struct {
	// at is the write, and after says that it still happens, with its reply lost.
	at    string
	after bool

	once sync.Once
	dead chan struct{}
}

// NewLife makes the life of a replica that dies at a write, by its name in WriteOf
// or that of a method of binding.Backend, before it or after it.
func NewLife(at string, after bool) *Life {
	return &Life{at: at, after: after, dead: make(chan struct{})}
}

// Died is closed once it is over.
func (l *Life) Died() <-chan struct{} { return l.dead }

// die ends the life, and the goroutine that came to its end.
func (l *Life) die() {
	l.once.Do(func() { close(l.dead) })
	runtime.Goexit()
}

// live ends the goroutine where the life is over.
func (l *Life) live() {
	select {
	case <-l.dead:
		runtime.Goexit()
	default:
	}
}

// WriteOf names what a change of a record does: which of the contract's writes.
func WriteOf(before, after binding.Record) string {
	switch was, is := before.Run, after.Run; {
	case after.Epoch > before.Epoch:
		return "clear"
	case after.Generation > before.Generation && before.Generation == 0:
		return "first lease"
	case after.Generation > before.Generation:
		return "replace"
	case was == nil && is == nil:
		return writeOfEnding(before, after)
	case was == nil && is.AskedBy != "":
		return "resume"
	case was == nil:
		return "start"
	case is == nil && after.EndingRun().Terminal:
		return "terminate"
	case is == nil:
		return "take over"
	default:
		return writeOfRun(before, after)
	}
}

func writeOfEnding(before, after binding.Record) string {
	was, is := before.EndingRun(), after.EndingRun()
	switch {
	case was != nil && is == nil:
		return "drop run"
	case len(after.Ending) < len(before.Ending):
		return "drop lease"
	case was != nil && is.Terminal != was.Terminal:
		return "put terminal"
	case was != nil && len(is.Run.Tail) < len(was.Run.Tail):
		return "trim"
	default:
		return ""
	}
}

func writeOfRun(before, after binding.Record) string {
	was, is := before.Run, after.Run
	switch {
	case after.Head.Revision > before.Head.Revision:
		return "head"
	case is.End != was.End:
		return "end"
	case is.EventHead > was.EventHead:
		return "events"
	case len(is.Admitted) > len(was.Admitted):
		return "admit"
	case len(is.Admitted) < len(was.Admitted):
		return "release"
	case is.OwnerBeat > was.OwnerBeat:
		return "beat"
	case before.Lease != nil && after.Lease != nil && before.Lease.State != after.Lease.State:
		return "lease " + string(after.Lease.State)
	default:
		return ""
	}
}

// mortalStore is the store as a replica with a Life uses it.
type mortalStore struct {
	binding.Backend
	*Life
}

var errDies = errors.New("runstest: the replica dies before this write")

// Update implements binding.Records.
func (m mortalStore) Update(ctx context.Context, id string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	m.live()
	reached := false
	r, err := m.Backend.Update(ctx, id, f, func(r *binding.Record) error {
		reached = false // it may be called again
		before, err := copied(*r)
		if err != nil {
			return err
		}
		if err := change(r); err != nil {
			return err
		}
		reached = WriteOf(before, *r) == m.at
		if reached && !m.after {
			return errDies
		}
		return nil
	})
	if reached && (m.after && err == nil || errors.Is(err, errDies)) {
		m.die()
	}
	m.live()
	return r, err
}

// write does a write that is named by its method, as far as the life goes.
func (m mortalStore) write(name string, do func() error) error {
	m.live()
	if m.at == name && !m.after {
		m.die()
	}
	err := do()
	if m.at == name && err == nil {
		m.die()
	}
	m.live()
	return err
}

// Insert implements binding.Records.
func (m mortalStore) Insert(ctx context.Context, r binding.Record) (stands binding.Record, inserted bool, err error) {
	err = m.write("Insert", func() (err error) {
		stands, inserted, err = m.Backend.Insert(ctx, r)
		return err
	})
	return stands, inserted, err
}

// PutChunk implements binding.Log.
func (m mortalStore) PutChunk(ctx context.Context, c binding.Chunk) (stands binding.Chunk, err error) {
	err = m.write("PutChunk", func() (err error) {
		stands, err = m.Backend.PutChunk(ctx, c)
		return err
	})
	return stands, err
}

// PutRun implements binding.RunDocuments.
func (m mortalStore) PutRun(ctx context.Context, d binding.RunDocument) error {
	return m.write("PutRun", func() error { return m.Backend.PutRun(ctx, d) })
}

// InsertRow implements binding.Ledger. A row that revokes is a write of its own.
func (m mortalStore) InsertRow(ctx context.Context, r binding.Row) (stands binding.Row, err error) {
	name := "InsertRow"
	if r.State == binding.RowRevoked {
		name = "revoke"
	}
	err = m.write(name, func() (err error) {
		stands, err = m.Backend.InsertRow(ctx, r)
		return err
	})
	return stands, err
}

// SettleRow implements binding.Ledger.
func (m mortalStore) SettleRow(ctx context.Context, key binding.RowKey, nonce string, to binding.RowState, outcome []byte) (settled bool, err error) {
	err = m.write("SettleRow", func() (err error) {
		settled, err = m.Backend.SettleRow(ctx, key, nonce, to, outcome)
		return err
	})
	return settled, err
}

// Load implements binding.Records.
func (m mortalStore) Load(ctx context.Context, id string) (binding.Record, error) {
	m.live()
	return m.Backend.Load(ctx, id)
}

// List implements binding.Records.
func (m mortalStore) List(ctx context.Context, after string, limit int, busy bool) ([]binding.Record, error) {
	m.live()
	return m.Backend.List(ctx, after, limit, busy)
}

// Committed implements binding.Records.
func (m mortalStore) Committed(ctx context.Context, id string) (fence.Committed, error) {
	m.live()
	return m.Backend.Committed(ctx, id)
}

// LoadRun implements binding.RunDocuments.
func (m mortalStore) LoadRun(ctx context.Context, id string) (binding.RunDocument, error) {
	m.live()
	return m.Backend.LoadRun(ctx, id)
}

// mortalProvider is the provider of such a replica.
type mortalProvider struct {
	sandbox.Provider
	*Life
}

// Claim implements sandbox.Provider.
func (m mortalProvider) Claim(ctx context.Context, c sandbox.Claim) (sandbox.Instance, error) {
	m.live()
	in, err := m.Provider.Claim(ctx, c)
	m.live()
	return in, err
}

// Release implements sandbox.Provider.
func (m mortalProvider) Release(ctx context.Context, claimName string) error {
	m.live()
	return m.Provider.Release(ctx, claimName)
}

// Alive implements sandbox.Provider.
func (m mortalProvider) Alive(ctx context.Context, claimName, uid string) (bool, error) {
	m.live()
	return m.Provider.Alive(ctx, claimName, uid)
}

// List implements sandbox.Provider.
func (m mortalProvider) List(ctx context.Context) ([]sandbox.Instance, error) {
	m.live()
	return m.Provider.List(ctx)
}

// Exits implements sandbox.Provider: they are told to others.
func (m mortalProvider) Exits() <-chan sandbox.Exit { return nil }

// mortalDialer makes its clients of workers, whose streams end with it.
type mortalDialer struct {
	worker.Dialer
	*Life
}

// Dial implements worker.Dialer.
func (m mortalDialer) Dial(in sandbox.Instance) (worker.Client, error) {
	m.live()
	c, err := m.Dialer.Dial(in)
	return mortalClient{c, m.Life}, err
}

type mortalClient struct {
	worker.Client
	*Life
}

// cut gives a context that ends with the life as well.
func (m mortalClient) cut(ctx context.Context) context.Context {
	m.live()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-m.dead:
		case <-ctx.Done():
		}
	}()
	return ctx
}

// Start implements worker.Client.
func (m mortalClient) Start(ctx context.Context, token string, t worker.Turn) (worker.Stream, error) {
	return m.Client.Start(m.cut(ctx), token, t)
}

// Resume implements worker.Client.
func (m mortalClient) Resume(ctx context.Context, token string, r worker.Resume) (worker.Stream, error) {
	return m.Client.Resume(m.cut(ctx), token, r)
}

// Cancel implements worker.Client.
func (m mortalClient) Cancel(ctx context.Context, token string, env fence.Envelope, reason string) (worker.Cancelled, error) {
	m.live()
	return m.Client.Cancel(ctx, token, env, reason)
}

// copied is a record of one's own.
func copied(r binding.Record) (out binding.Record, err error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(raw, &out)
}
