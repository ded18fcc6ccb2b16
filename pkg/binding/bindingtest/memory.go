package bindingtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
)

// Memory is a binding.Backend in memory. It is the real thing but for
// durability: documents are kept as the JSON that a store would keep, and a
// write matches the version that it read.
type Memory struct {
	mu      sync.Mutex
	records map[string]document
	chunks  map[string][]binding.Chunk
	runs    map[string]json.RawMessage
	// forgotten are the runs whose log is not kept any more.
	forgotten map[string]bool
	rows      map[binding.RowKey]binding.Row
	// observe sees each change of a record as it is made.
	observe func(before *binding.Record, after binding.Record)
}

type document struct {
	version uint64
	json    []byte
}

var _ binding.Backend = (*Memory)(nil)

// NewMemory is empty.
func NewMemory() *Memory {
	return &Memory{
		records:   make(map[string]document),
		chunks:    make(map[string][]binding.Chunk),
		forgotten: make(map[string]bool),
		runs:      make(map[string]json.RawMessage),
		rows:      make(map[binding.RowKey]binding.Row),
		observe:   func(*binding.Record, binding.Record) {},
	}
}

// Close implements binding.Backend.
func (*Memory) Close() error { return nil }

// Insert implements binding.Records.
func (m *Memory) Insert(ctx context.Context, r binding.Record) (stands binding.Record, inserted bool, err error) {
	if err := ctx.Err(); err != nil {
		return binding.Record{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.records[r.ID]; ok {
		return decode[binding.Record](d.json), false, nil
	}
	doc, err := encode(r)
	if err != nil {
		return binding.Record{}, false, err
	}
	m.records[r.ID] = document{version: 1, json: doc}
	stands = decode[binding.Record](doc)
	m.observe(nil, stands)
	return stands, true, nil
}

// Load implements binding.Records.
func (m *Memory) Load(ctx context.Context, bindingID string) (binding.Record, error) {
	if err := ctx.Err(); err != nil {
		return binding.Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.records[bindingID]
	if !ok {
		return binding.Record{}, binding.ErrNotFound
	}
	return decode[binding.Record](d.json), nil
}

// Committed implements binding.Records.
func (m *Memory) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	r, err := m.Load(ctx, bindingID)
	if err != nil {
		return fence.Committed{}, err
	}
	return r.Committed(), nil
}

// Update implements binding.Records.
func (m *Memory) Update(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	for {
		w, err := m.stage(ctx, bindingID, f, change)
		if err != nil {
			return binding.Record{}, err
		}
		if w.commit() {
			return w.after, nil
		}
	}
}

// staged is a conditional write that is under way: it names the version that
// its change saw.
type staged struct {
	m      *Memory
	id     string
	was    document
	doc    []byte
	before binding.Record
	after  binding.Record
}

// stage reads the record and applies change to it.
func (m *Memory) stage(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (*staged, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	was, ok := m.records[bindingID]
	m.mu.Unlock()
	if !ok {
		return nil, binding.ErrNotFound
	}
	r := decode[binding.Record](was.json)
	if !matches(f, r) {
		return nil, binding.ErrFenced
	}
	if err := change(&r); err != nil {
		return nil, err
	}
	r.ID = bindingID
	doc, err := encode(r)
	if err != nil {
		return nil, err
	}
	return &staged{
		m: m, id: bindingID, was: was, doc: doc,
		before: decode[binding.Record](was.json), after: decode[binding.Record](doc),
	}, nil
}

// commit writes where the version is still the one that was read.
func (w *staged) commit() bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.m.records[w.id].version != w.was.version {
		return false
	}
	w.m.records[w.id] = document{version: w.was.version + 1, json: w.doc}
	w.m.observe(&w.before, w.after)
	return true
}

func matches(f binding.Filter, r binding.Record) bool {
	c := r.Committed()
	return (f.Epoch == nil || *f.Epoch == c.Epoch) &&
		(f.Generation == nil || *f.Generation == c.Generation) &&
		(f.RunID == nil || *f.RunID == c.RunID)
}

// FindRun implements binding.Records.
func (m *Memory) FindRun(ctx context.Context, runID string) (bindingID string, err error) {
	all, err := m.List(ctx, "", int(^uint(0)>>1), true)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if e := r.EndingRun(); r.Run != nil && r.Run.ID == runID || e != nil && e.Run.ID == runID {
			return r.ID, nil
		}
	}
	return "", binding.ErrNotFound
}

// List implements binding.Records.
func (m *Memory) List(ctx context.Context, after string, limit int, busy bool) ([]binding.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []binding.Record
	for _, id := range slices.Sorted(maps.Keys(m.records)) {
		r := decode[binding.Record](m.records[id].json)
		if id > after && len(out) < limit && (!busy || r.Run != nil || len(r.Ending) > 0) {
			out = append(out, r)
		}
	}
	return out, nil
}

// PutChunk implements binding.Log.
func (m *Memory) PutChunk(ctx context.Context, c binding.Chunk) (stands binding.Chunk, err error) {
	if err := ctx.Err(); err != nil {
		return binding.Chunk{}, err
	}
	doc, err := encode(c)
	if err != nil {
		return binding.Chunk{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	byFirst := func(a binding.Chunk, first uint64) int { return cmp.Compare(a.First, first) }
	i, found := slices.BinarySearchFunc(m.chunks[c.RunID], c.First, byFirst)
	if !found {
		m.chunks[c.RunID] = slices.Insert(m.chunks[c.RunID], i, decode[binding.Chunk](doc))
	}
	return clone(m.chunks[c.RunID][i]), nil
}

// Chunks implements binding.Log.
func (m *Memory) Chunks(ctx context.Context, runID string, from uint64, limit int) ([]binding.Chunk, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []binding.Chunk
	for _, c := range m.chunks[runID] {
		if c.Next() > from && len(out) < limit {
			out = append(out, clone(c))
		}
	}
	return out, nil
}

// PutRun implements binding.RunDocuments.
func (m *Memory) PutRun(ctx context.Context, d binding.RunDocument) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	doc, err := encode(d)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.runs[d.RunID]; !ok {
		m.runs[d.RunID] = doc
	}
	return nil
}

// LoadRun implements binding.RunDocuments.
func (m *Memory) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	if err := ctx.Err(); err != nil {
		return binding.RunDocument{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.runs[runID]
	if !ok {
		return binding.RunDocument{}, binding.ErrNotFound
	}
	out := decode[binding.RunDocument](d)
	out.Forgotten = m.forgotten[runID]
	return out, nil
}

// EndedRuns implements binding.RunDocuments.
func (m *Memory) EndedRuns(ctx context.Context, before time.Time, after binding.EndedRun, limit int) ([]binding.EndedRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	order := func(a, b binding.EndedRun) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.RunID, b.RunID))
	}
	var out []binding.EndedRun
	for id, raw := range m.runs {
		d := decode[binding.RunDocument](raw)
		run := binding.EndedRun{RunID: id, BindingID: d.BindingID, EndedAt: d.EndedAt.UTC().Truncate(time.Microsecond)}
		if !m.forgotten[id] && run.EndedAt.Before(before) && order(run, after) > 0 {
			out = append(out, run)
		}
	}
	slices.SortFunc(out, order)
	return out[:min(limit, len(out))], nil
}

// ForgetLog implements binding.RunDocuments.
func (m *Memory) ForgetLog(ctx context.Context, runID string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.runs[runID]; !ok {
		return binding.ErrNotFound
	}
	m.forgotten[runID] = true
	delete(m.chunks, runID)
	return nil
}

// InsertRow implements binding.Ledger.
func (m *Memory) InsertRow(ctx context.Context, r binding.Row) (stands binding.Row, err error) {
	if err := ctx.Err(); err != nil {
		return binding.Row{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.rows[r.RowKey]; !ok {
		r.Outcome = bytes.Clone(r.Outcome)
		m.rows[r.RowKey] = r
	}
	return cloneRow(m.rows[r.RowKey]), nil
}

// SettleRow implements binding.Ledger.
func (m *Memory) SettleRow(ctx context.Context, key binding.RowKey, nonce string, to binding.RowState, outcome []byte) (settled bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.rows[key]
	if !ok || r.Nonce != nonce || r.State != binding.RowDispatched {
		return false, nil
	}
	r.State, r.Outcome = to, bytes.Clone(outcome)
	m.rows[key] = r
	return true, nil
}

// LoadRow implements binding.Ledger.
func (m *Memory) LoadRow(ctx context.Context, key binding.RowKey) (binding.Row, error) {
	if err := ctx.Err(); err != nil {
		return binding.Row{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.rows[key]
	if !ok {
		return binding.Row{}, binding.ErrNotFound
	}
	return cloneRow(r), nil
}

// Rows implements binding.Ledger.
func (m *Memory) Rows(ctx context.Context, bindingID string, epoch uint32, runID string) ([]binding.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []binding.Row
	for k, r := range m.rows {
		if k.BindingID == bindingID && k.Epoch == epoch && k.RunID == runID {
			r.Outcome = nil
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b binding.Row) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}

func cloneRow(r binding.Row) binding.Row {
	r.Outcome = bytes.Clone(r.Outcome)
	return r
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode takes what encode made; that it cannot is a defect of this package.
func decode[T any](doc []byte) T {
	var v T
	if err := json.Unmarshal(doc, &v); err != nil {
		panic("bindingtest: " + err.Error())
	}
	return v
}

func clone[T any](v T) T {
	doc, err := encode(v)
	if err != nil {
		panic("bindingtest: " + err.Error())
	}
	return decode[T](doc)
}
