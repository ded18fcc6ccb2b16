package session

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"time"

	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/middleware"
)

// Token is a call token for one audience, held in memory only.
type Token struct{ Audience, Token string }

// String keeps the token out of whatever is printed.
func (t Token) String() string { return "token for " + t.Audience }

// GoString is String.
func (t Token) GoString() string { return t.String() }

// LogValue keeps the token out of every log.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Capability is the one that came with bind.
type Capability struct {
	// ID is its jti.
	ID       string
	IssuedAt time.Time
}

// Bind is the construction data of the worker, for life.
type Bind struct {
	Envelope       fence.Envelope
	ConversationID string
	// ContractVersion of the adapter contract that the agent was made for; 0 is 1.
	ContractVersion uint32
	// Expected is compared with the worker's own values.
	Expected     Info
	Construction harness.Construction
	// Manifests are materialized before the adapter is initialized, which finds
	// them in Construction.Manifest.
	Manifests manifest.Manifests
	// Middleware is put around the facades of every run, the first step outermost.
	Middleware []middleware.Step
	// Pending is the interrupt that is pending as committed; nil where there is
	// none, or where the run is the answer to it.
	Pending *Interrupt
	// ShutdownGrace is how long a shutdown may take; 0 is the default of 10 s.
	ShutdownGrace time.Duration
	// Digest of all that does not differ when the request is sent again.
	Digest     [sha256.Size]byte
	Capability Capability
	// Tokens of the run that the worker is bound for.
	Tokens []Token
}

// delegates says of a tool id that its calls let another agent work.
func (b *Bind) delegates(toolID string) bool {
	return slices.ContainsFunc(b.Construction.Tools, func(t harness.Tool) bool { return t.ID == toolID && t.Delegates })
}

// Connector makes the facades of a run, from the endpoints that bind gave and
// the run's call tokens.
type Connector interface {
	// Connect makes no connection yet. commit is nil where nothing is committed:
	// the facades are those of the bind itself.
	Connect(env fence.Envelope, tokens []Token, commit CommitPoint) (harness.Facades, error)
	// Close gives up what the facades hold.
	Close()
}

// Bind binds the worker for life; connect makes its connector and is called only
// then. The same request again is answered the same, whatever happened since.
// Errors: binding_conflict for any other second bind; worker_mismatch where
// another worker or contract was expected; harness_options_invalid also for a
// harness that needs a raw credential inside and for an unknown middleware;
// invalid_request for a tool whose schema cannot be used; those of the manifests;
// sandbox_not_ready once the worker is being shut down; what the adapter says.
// With each of them the worker stays unbound, and nothing is left of the bind.
func (s *Session) Bind(ctx context.Context, b Bind, connect func() (Connector, error)) error {
	const op = "session.Bind"
	select {
	case s.binding <- struct{}{}:
		defer func() { <-s.binding }()
	case <-ctx.Done():
		return fault.From(ctx.Err(), op)
	}
	if bound, err := s.bindable(b); bound || err != nil {
		return err
	}
	parts, err := s.build(ctx, b, connect)
	if err != nil {
		return fault.From(err, op)
	}
	failpoint.Reach(failpoint.WorkerBuilt)
	s.mu.Lock()
	defer s.mu.Unlock()
	// A shutdown that came meanwhile waits for this call and cleans up.
	s.bind, s.built = &b, parts
	if b.Pending != nil {
		s.pending = pendingInterrupt{question: &question{Interrupt: *b.Pending}, known: true}
	}
	s.unbound.Stop()
	if s.closed {
		return fault.New(fault.SandboxNotReady, op)
	}
	return nil
}

// bindable says whether the worker is bound by this very request already, or why
// it cannot be bound by it.
func (s *Session) bindable(b Bind) (bound bool, err error) {
	const op = "session.Bind"
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false, fault.New(fault.SandboxNotReady, op)
	case s.bind == nil:
		s.waitForBind()
		return false, s.expected(b)
	case s.bind.Digest != b.Digest:
		return false, fault.New(fault.BindingConflict, op)
	}
	// Whoever repeats a bind has not seen an answer yet, and will know the worker
	// by the capability that came with the answer that it sees. An older request
	// that comes late changes nothing.
	if !b.Capability.IssuedAt.Before(s.bind.Capability.IssuedAt) {
		s.bind.Capability = b.Capability
		if len(s.bind.Tokens) > 0 {
			s.bind.Tokens = b.Tokens
		}
	}
	return true, nil
}

func (s *Session) expected(b Bind) error {
	const op = "session.Bind"
	if v := b.ContractVersion; v != 0 && v != harness.ContractVersion {
		return fault.New(fault.WorkerMismatch, op, fault.Detail("contract_version: this worker has version 1"))
	}
	e := b.Expected
	for _, p := range []struct{ field, want, have string }{
		{"harness_id", e.HarnessID, s.desc.ID},
		{"adapter_version", e.AdapterVersion, s.desc.AdapterVersion},
		{"worker_image_digest", e.ImageDigest, s.cfg.ImageDigest},
		{"boot_nonce", e.BootNonce, s.cfg.BootNonce},
	} {
		if p.want != p.have {
			return fault.New(fault.WorkerMismatch, op, fault.Detail("expected."+p.field+": not this worker's"))
		}
	}
	return nil
}
