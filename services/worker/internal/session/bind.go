package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
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
	// Expected is compared with the worker's own values.
	Expected     Info
	Construction harness.Construction
	// ShutdownGrace is how long a shutdown may take; 0 is the default of 10 s.
	ShutdownGrace time.Duration
	// Digest of all that does not differ when the request is sent again.
	Digest     [sha256.Size]byte
	Capability Capability
	// Tokens of the run that the worker is bound for.
	Tokens []Token
}

// Connector makes the facades of a run, from the endpoints that bind gave and
// the run's call tokens.
type Connector interface {
	// Connect makes no connection yet.
	Connect(env fence.Envelope, tokens []Token, commit CommitPoint) (harness.Facades, error)
	// Close gives up what the facades hold.
	Close()
}

// Bind binds the worker for life; connect makes its connector and is called only
// then. The same request again is answered the same, whatever happened since.
// Errors: binding_conflict for any other second bind; worker_mismatch where
// another worker was expected; sandbox_not_ready once the worker is being shut
// down; what the adapter says, with which the worker stays unbound.
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
	runtime, err := s.initialize(ctx, b.Construction)
	if err != nil {
		return fault.From(err, op)
	}
	connector, err := connect()
	if err != nil {
		return errors.Join(fault.From(err, op), runtime.Cleanup(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A shutdown that came meanwhile waits for this call and cleans up.
	s.bind, s.runtime, s.connector = &b, runtime, connector
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
		return false, s.expected(b.Expected)
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

func (s *Session) expected(e Info) error {
	for _, p := range []struct{ field, want, have string }{
		{"harness_id", e.HarnessID, s.desc.ID},
		{"adapter_version", e.AdapterVersion, s.desc.AdapterVersion},
		{"worker_image_digest", e.ImageDigest, s.cfg.ImageDigest},
		{"boot_nonce", e.BootNonce, s.cfg.BootNonce},
	} {
		if p.want != p.have {
			return fault.New(fault.WorkerMismatch, "session.Bind", fault.Detail("expected."+p.field+": not this worker's"))
		}
	}
	return nil
}

// initialize turns a panic of the adapter into an error.
func (s *Session) initialize(ctx context.Context, c harness.Construction) (runtime harness.Runtime, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v, "session.initialize")
		}
	}()
	return s.cfg.Adapter.Initialize(ctx, c)
}
