package memory

import (
	"context"
	"crypto/sha256"
	"errors"

	"cofferdam.dev/pkg/fault"
)

// Get reads one record. Faults: memory_scope_denied; stale_lease; not_found, also
// for one that was deleted or whose time is over; persistence_failed where the
// record is damaged or cannot be read; dependency_unavailable where committed
// state cannot be read.
func (s *Service) Get(ctx context.Context, c Caller, scope Scope, key string) (Record, error) {
	p, err := s.locate(ctx, c, scope)
	if err != nil {
		return Record{}, err
	}
	return s.read(ctx, p.namespace, key)
}

func (s *Service) read(ctx context.Context, namespace, key string) (Record, error) {
	const op = "memory.Get"
	r, err := s.cfg.Store.Get(ctx, namespace, key, s.cfg.Now())
	switch {
	case errors.Is(err, ErrNotFound):
		return Record{}, fault.New(fault.NotFound, op)
	case err != nil:
		return Record{}, failed(ctx, err, fault.PersistenceFailed, op)
	case sha256.Sum256(r.Content) != r.SHA256:
		return Record{}, fault.Wrap(errors.New("content of a memory record is damaged"), fault.PersistenceFailed, op)
	}
	return r, nil
}
