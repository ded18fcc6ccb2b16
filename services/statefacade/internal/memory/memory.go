// Package memory keeps what agents are to remember across conversations: the
// contract's "Memory".
//
// The namespace of a record is computed from the committed record of the
// binding, never from the request: a worker cannot name another subject or
// organization. A change is an admitted effect of its run (write 4 of the
// contract's fencing file), so it happens at most once for its key and not at all
// for a lease that was replaced, and it compares the revision in the very write
// that stores.
//
// # What is not here
//
// Get and put in the user scope only. The agent and organization scopes are
// refused, also where a capability names them. Search, delete, redaction,
// approval and retention belong into this package as further operations and as
// further steps of the write pipeline (see pipeline in put.go), between validate
// and store.
package memory

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// Service has the operations. It is safe for concurrent use.
type Service struct {
	records binding.Records
	effects *binding.Effects
	store   Store
	now     func() time.Time
}

// New makes the service. effects is the one of the process; now is time.Now
// outside of tests.
func New(records binding.Records, effects *binding.Effects, store Store, now func() time.Time) *Service {
	return &Service{records: records, effects: effects, store: store, now: now}
}

// Caller is who asks, as the door has found out.
type Caller struct {
	Grant fence.Grant
	// ID is the SPIFFE ID of the sandbox.
	ID spiffeid.ID
	// Scopes that its capability allows.
	Scopes []string
}

// Get reads one record. Faults: memory_scope_denied; stale_lease; not_found;
// persistence_failed where the record is damaged or cannot be read;
// dependency_unavailable where committed state cannot be read.
func (s *Service) Get(ctx context.Context, c Caller, scope Scope, key string) (Record, error) {
	const op = "memory.Get"
	namespace, err := s.namespace(ctx, c, scope)
	if err != nil {
		return Record{}, err
	}
	r, err := s.store.Get(ctx, namespace, key)
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

// namespace authorizes the scope and computes whose records it has.
func (s *Service) namespace(ctx context.Context, c Caller, scope Scope) (string, error) {
	const op = "memory.authorize"
	if err := c.Grant.Validate(); err != nil {
		return "", err
	}
	if scope != ScopeUser || !slices.Contains(c.Scopes, string(scope)) {
		return "", fault.New(fault.MemoryScopeDenied, op)
	}
	e := c.Grant.Envelope()
	r, err := s.records.Load(ctx, e.BindingID)
	if err != nil {
		return "", failed(ctx, err, fault.DependencyUnavailable, op)
	}
	if err := fence.Check(r.Committed(), e, s.now()); err != nil {
		return "", err
	}
	return userNamespace(r.Identity)
}

// userNamespace is that of one subject with one agent in one environment. It is
// a digest, so that no list of namespaces is a list of people.
func userNamespace(id binding.Identity) (string, error) {
	if id.Environment == "" || id.Subject == "" || id.AgentID == "" {
		return "", fault.Wrap(errors.New("committed identity is incomplete"), fault.Internal, "memory.namespace")
	}
	return "user:" + digest.Of(id.Environment, id.Subject, id.AgentID), nil
}

func failed(ctx context.Context, err error, code fault.Code, op string) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx), op)
	}
	return fault.Wrap(err, code, op)
}
