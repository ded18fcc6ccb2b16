package agentstoretest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"cofferdam.dev/services/controlplane/internal/agents"
)

// Memory is a back end for tests that are about something else. It passes the
// suite.
type Memory struct {
	mu  sync.Mutex
	all []agents.Record
}

var _ agents.Store = (*Memory)(nil)

// Newest implements agents.Store.
func (m *Memory) Newest(ctx context.Context, id string) (agents.Newest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := agents.Newest{ID: id}
	for _, r := range m.all {
		if r.ID == id && r.Version > n.Version {
			n.Version, n.Digest = r.Version, r.Digest
		}
	}
	return n, ctx.Err()
}

// Load implements agents.Store.
func (m *Memory) Load(ctx context.Context, id string, version uint32) (agents.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		if r.ID == id && r.Version == version {
			r.Body = slices.Clone(r.Body)
			return r, ctx.Err()
		}
	}
	return agents.Record{}, cmp.Or(ctx.Err(), agents.ErrNoVersion)
}

// Insert implements agents.Store.
func (m *Memory) Insert(ctx context.Context, r agents.Record) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if slices.ContainsFunc(m.all, func(o agents.Record) bool { return o.ID == r.ID && o.Version == r.Version }) {
		return false, nil
	}
	r.Body = slices.Clone(r.Body)
	m.all = append(m.all, r)
	return true, nil
}

// List implements agents.Store.
func (m *Memory) List(ctx context.Context, limit int) ([]agents.Newest, error) {
	m.mu.Lock()
	ids := map[string]bool{}
	for _, r := range m.all {
		ids[r.ID] = true
	}
	m.mu.Unlock()
	var out []agents.Newest
	for id := range ids {
		n, err := m.Newest(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b agents.Newest) int { return cmp.Compare(a.ID, b.ID) })
	return out[:min(len(out), limit)], ctx.Err()
}

// Digests implements agents.Store.
func (m *Memory) Digests(ctx context.Context, id string) (map[string]uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]uint32{}
	for _, r := range m.all {
		if r.ID == id {
			out[r.Digest] = max(out[r.Digest], r.Version)
		}
	}
	return out, ctx.Err()
}
