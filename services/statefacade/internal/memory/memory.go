// Package memory keeps what agents are to remember across conversations: the
// contract's "Memory".
//
// The namespace of a record is computed from the committed record of the
// binding, never from the request: a worker cannot name another subject or
// organization. A change is an admitted effect of its run (write 4 of the
// contract's fencing file), so it happens at most once for its key and not at all
// for a lease that was replaced, and it compares the revision in the very write
// that stores. Memory grants nothing: what is in it is untrusted.
package memory

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
	"cofferdam.dev/services/statefacade/internal/memory/secrets"
)

// Config is what a Service needs.
type Config struct {
	Records binding.Records
	// Effects is the one of the process.
	Effects *binding.Effects
	Store   Store
	Policy  Policy
	Secrets *secrets.Scanner
	// Embedder makes the vector rank; nil is none, and every search ranks by words.
	Embedder Embedder
	Logger   *slog.Logger
	// Now is time.Now outside of tests.
	Now func() time.Time
}

// Service has the operations. It is safe for concurrent use.
type Service struct {
	cfg     Config
	rankers map[Rank]ranker
}

// New makes the service.
func New(cfg Config) *Service {
	words := byWords{cfg.Store, cfg.Now}
	s := &Service{cfg: cfg, rankers: map[Rank]ranker{RankLexical: words, RankVector: words}}
	if cfg.Embedder != nil {
		s.rankers[RankVector] = byVector{Service: s, words: words, away: new(atomic.Int64)}
	}
	return s
}

// Caller is who asks, as the door has found out.
type Caller struct {
	Grant fence.Grant
	// ID is the SPIFFE ID of the sandbox.
	ID spiffeid.ID
	// Scopes that its capability allows.
	Scopes []string
}

// place is a namespace, and whose run has come to it.
type place struct {
	namespace string
	identity  binding.Identity
}

// locate authorizes the use of a scope and computes whose records it has.
func (s *Service) locate(ctx context.Context, c Caller, scope Scope) (place, error) {
	const op = "memory.authorize"
	if err := c.Grant.Validate(); err != nil {
		return place{}, err
	}
	if !scope.valid() || !slices.Contains(c.Scopes, string(scope)) {
		return place{}, fault.New(fault.MemoryScopeDenied, op, fault.Detail("scope: not one of this run's"))
	}
	e := c.Grant.Envelope()
	r, err := s.cfg.Records.Load(ctx, e.BindingID)
	if err != nil {
		return place{}, failed(ctx, err, fault.DependencyUnavailable, op)
	}
	if err := fence.Check(r.Committed(), e, s.cfg.Now()); err != nil {
		return place{}, err
	}
	namespace, err := s.cfg.Policy.namespace(scope, r.Identity)
	return place{namespace, r.Identity}, err
}

// locateToWrite is locate for a change.
func (s *Service) locateToWrite(ctx context.Context, c Caller, scope Scope) (place, error) {
	p, err := s.locate(ctx, c, scope)
	if err == nil && !s.cfg.Policy.mayWrite(scope, p.identity) {
		err = fault.New(fault.MemoryScopeDenied, "memory.authorize", fault.Detail("scope: read-only for this run"))
	}
	return p, err
}

// namespace of a scope: the contract's table. It is a digest, so that no list of
// namespaces is a list of people.
func (p Policy) namespace(scope Scope, id binding.Identity) (string, error) {
	parts := []string{id.Environment, id.AgentID}
	switch scope {
	case ScopeUser:
		parts = append(parts, id.Subject)
	case ScopeAgent:
	case ScopeOrganization:
		if id.Organization == "" {
			return "", fault.New(fault.MemoryScopeDenied, "memory.namespace", fault.Detail("scope: this run belongs to no organization"))
		}
		kind, set := p.agentSet(id.AgentID)
		parts = []string{id.Environment, id.Organization, kind, set}
	}
	if slices.Contains(parts, "") {
		return "", fault.Wrap(errors.New("committed identity is incomplete"), fault.Internal, "memory.namespace")
	}
	return string(scope) + ":" + digest.Of(parts...), nil
}

func failed(ctx context.Context, err error, code fault.Code, op string) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx), op)
	}
	return fault.Wrap(err, code, op)
}
