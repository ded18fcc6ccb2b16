package runs

import (
	"context"
	"errors"
	"sync"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Binding is what an operator may see of a binding: nothing of who it belongs to.
type Binding struct {
	Record   binding.Record
	Instance *sandbox.Instance
	Refusals []Refusal
}

// Bindings pages through all bindings in the order of their ids.
func (s *Service) Bindings(ctx context.Context, after string, limit int) ([]Binding, error) {
	recs, err := s.cfg.Writer.Backend().List(ctx, after, limit, false)
	if err != nil {
		return nil, fault.Wrap(err, fault.DependencyUnavailable, "runs.Bindings")
	}
	instances, err := s.instances(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Binding, len(recs))
	for i, r := range recs {
		out[i] = s.view(r, instances)
	}
	return out, nil
}

// Binding gives one binding. Errors: not_found.
func (s *Service) Binding(ctx context.Context, id string) (Binding, error) {
	rec, err := s.cfg.Writer.Backend().Load(ctx, id)
	if errors.Is(err, binding.ErrNotFound) {
		return Binding{}, fault.New(fault.NotFound, "runs.Binding")
	}
	if err != nil {
		return Binding{}, fault.Wrap(err, fault.DependencyUnavailable, "runs.Binding")
	}
	instances, err := s.instances(ctx)
	if err != nil {
		return Binding{}, err
	}
	return s.view(rec, instances), nil
}

func (s *Service) instances(ctx context.Context) (map[string]sandbox.Instance, error) {
	list, err := s.cfg.Provider.List(ctx)
	if err != nil {
		return nil, fault.From(err, "runs.instances")
	}
	out := make(map[string]sandbox.Instance, len(list))
	for _, in := range list {
		out[in.ClaimName] = in
	}
	return out, nil
}

func (s *Service) view(r binding.Record, instances map[string]sandbox.Instance) Binding {
	b := Binding{Record: r, Refusals: s.refusals.of(r.ID)}
	if r.Lease != nil {
		if in, ok := instances[r.Lease.ClaimName]; ok && in.UID == r.Lease.InstanceUID {
			b.Instance = &in
		}
	}
	return b
}

// Refusal is something that the fence of this replica refused.
type Refusal struct {
	At         time.Time
	What       string
	Generation uint32
}

const (
	// keptRefusals of one binding, the newest.
	keptRefusals = 8
	// refusalBindings is for how many bindings refusals are kept.
	refusalBindings = 1024
)

type refusals struct {
	mu sync.Mutex
	by map[string][]Refusal
}

func newRefusals() *refusals { return &refusals{by: map[string][]Refusal{}} }

func (r *refusals) note(bindingID, what string, generation uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.by) >= refusalBindings && r.by[bindingID] == nil {
		clear(r.by) // a hint for operators: it may be short, and it may not grow
	}
	list := append(r.by[bindingID], Refusal{At: time.Now().UTC(), What: what, Generation: generation})
	r.by[bindingID] = list[max(0, len(list)-keptRefusals):]
}

func (r *refusals) of(bindingID string) []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Refusal(nil), r.by[bindingID]...)
}
