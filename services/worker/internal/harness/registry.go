package harness

import (
	"fmt"
	"maps"
	"slices"
)

// Registry is the set of first-party adapters.
type Registry struct{ adapters map[string]Adapter }

// NewRegistry makes a registry. Two adapters of one id are a defect.
func NewRegistry(adapters ...Adapter) (*Registry, error) {
	r := &Registry{adapters: make(map[string]Adapter, len(adapters))}
	for _, a := range adapters {
		id := a.Descriptor().ID
		if _, twice := r.adapters[id]; twice {
			return nil, fmt.Errorf("harness: adapter %q stands twice", id)
		}
		r.adapters[id] = a
	}
	return r, nil
}

// Get gives the adapter of an id, or an error that names those there are.
func (r *Registry) Get(id string) (Adapter, error) {
	a, ok := r.adapters[id]
	if !ok {
		return nil, fmt.Errorf("harness: no adapter %q; there are %v", id, slices.Sorted(maps.Keys(r.adapters)))
	}
	return a, nil
}
