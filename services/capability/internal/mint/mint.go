// Package mint decides which capabilities may be had, and signs them (Sandbox
// Worker Protocol v1, "Authorization").
//
// A capability for a run can be had only while the run is committed, its end is
// open, and the replica that asks is the one that drives it; a capability for
// the lease alone, only for the harness worker. The sandbox that will hold it
// has to be the instance of the committed lease.
//
// # What happens when the lease is replaced meanwhile
//
// The request was admitted by the fence, and the record is read once more right
// before anything is signed. Between that read and the answer the lease can
// still be replaced, and no lock here could prevent it: the answer may be on its
// way already. Nothing depends on it. Every receiver asks the fence with the
// generation in the token, in the write that has an effect, so a token of a
// replaced generation is refused everywhere from the moment of the replacement
// on. The second read only keeps the audit log and the answer honest sooner.
package mint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
)

const op = "mint.Mint"

// LifecycleTTL is how long a lifecycle capability lives, at most.
const LifecycleTTL = 5 * time.Minute

// Records reads committed records, by majority reads where the store has
// replicas.
type Records interface {
	// Load reads one record, or binding.ErrNotFound.
	Load(ctx context.Context, bindingID string) (binding.Record, error)
}

// Signer makes a compact JWS of a payload.
type Signer interface {
	// Sign makes one of a typ, and gives the kid of the key that signed as well.
	Sign(typ string, payload []byte) (compact, kid string, err error)
}

// Config is what a Minter needs. All of it is required but TokenEndpoints.
type Config struct {
	// Issuer is the iss of every capability.
	Issuer string
	// TrustDomain of the sandboxes.
	TrustDomain spiffeid.TrustDomain
	Records     Records
	Signer      Signer
	// Keys verify what Signer signed, and what was signed before it.
	Keys capability.Keys
	// MaxTTL bounds how long a capability lives, also where its run may go on
	// for longer.
	MaxTTL time.Duration
	// TokenEndpoints are the audiences that an assertion may be had for; empty is
	// none.
	TokenEndpoints []string
	Now            func() time.Time
	Logger         *slog.Logger
}

// Minter mints capabilities. It is safe for concurrent use and keeps no state.
type Minter struct {
	cfg      Config
	verifier *capability.Verifier
}

// New makes a Minter.
func New(cfg Config) (*Minter, error) {
	if cfg.Issuer == "" || cfg.TrustDomain.IsZero() || cfg.Records == nil || cfg.Signer == nil || cfg.MaxTTL <= 0 || cfg.Now == nil || cfg.Logger == nil {
		return nil, errors.New("mint: incomplete configuration")
	}
	verifier, err := capability.NewVerifier(capability.Config{Issuer: cfg.Issuer, Keys: cfg.Keys, Now: cfg.Now})
	if err != nil {
		return nil, err
	}
	return &Minter{cfg: cfg, verifier: verifier}, nil
}

// Mint signs one capability for each scope, in their order; all or none. They
// end with the run, or earlier. Errors: invalid_request (field and rule in the
// detail), request_too_large, stale_lease (another lease, run, sandbox or
// replica is committed), sandbox_not_ready (the lease has no instance yet),
// cancelled (how the run ends is decided), deadline_exceeded,
// dependency_unavailable.
func (m *Minter) Mint(ctx context.Context, g fence.Grant, req Request) ([]Token, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	env := g.Envelope()
	if err := req.validate(m.cfg.TrustDomain, env.RunID != ""); err != nil {
		return nil, err
	}
	record, err := m.load(ctx, env.BindingID)
	if err != nil {
		return nil, err
	}
	now := m.cfg.Now()
	expiry, err := m.authorize(record, env, req, now)
	if err != nil {
		return nil, err
	}
	claims, tokens := make([]capability.Claims, len(req.Scopes)), make([]Token, len(req.Scopes))
	for i, s := range req.Scopes {
		c := s.claims()
		c.ID, c.Issuer, c.Subject = "cap_"+rand.Text(), m.cfg.Issuer, req.Subject
		c.IssuedAt, c.NotBefore, c.Expiry = now, now, expiry
		c.BindingID, c.Epoch, c.Generation, c.RunID = env.BindingID, env.Epoch, env.Generation, env.RunID
		if tokens[i], err = m.sign(c, i); err != nil {
			return nil, err
		}
		claims[i] = c
	}
	for i, c := range claims { // only now: what is not handed out is not in the audit log
		m.audit(ctx, c, tokens[i])
	}
	return tokens, nil
}

func (m *Minter) load(ctx context.Context, bindingID string) (binding.Record, error) {
	r, err := m.cfg.Records.Load(ctx, bindingID)
	switch {
	case errors.Is(err, binding.ErrNotFound):
		return binding.Record{}, fault.New(fault.StaleLease, op)
	case err != nil && ctx.Err() != nil:
		return binding.Record{}, fault.From(ctx.Err(), op)
	case err != nil:
		return binding.Record{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	return r, nil
}

// authorize compares the request with the record and gives the end of the
// capabilities' life, in whole seconds.
func (m *Minter) authorize(r binding.Record, env fence.Envelope, req Request, now time.Time) (time.Time, error) {
	expiry := now.Add(m.cfg.MaxTTL)
	if env.RunID == "" {
		if err := fence.CheckLease(r.Committed(), env, now); err != nil {
			return time.Time{}, err
		}
		expiry = earlier(expiry, now.Add(LifecycleTTL))
	} else {
		if err := fence.Check(r.Committed(), env, now); err != nil {
			return time.Time{}, err
		}
		switch run := r.Run; { // not nil: Check compared its id
		case run.Owner != req.Owner:
			// Another replica took the run over: this one speaks for it no more.
			return time.Time{}, fault.Wrap(errors.New("another replica drives the run"), fault.StaleLease, op)
		case !run.End.Open():
			return time.Time{}, fault.New(fault.Cancelled, op)
		default:
			expiry = earlier(expiry, run.Deadline)
		}
	}
	switch {
	case r.Lease == nil || r.Lease.InstanceUID == "":
		return time.Time{}, fault.New(fault.SandboxNotReady, op)
	case identity.Sandbox(m.cfg.TrustDomain, r.Lease.InstanceUID) != req.Subject:
		return time.Time{}, fault.Wrap(errors.New("the lease has another instance"), fault.StaleLease, op)
	}
	expiry = expiry.Truncate(time.Second)
	if expiry.Unix() <= now.Unix() { // less than a second is left
		return time.Time{}, fault.New(fault.DeadlineExceeded, op)
	}
	return expiry, nil
}

func (m *Minter) sign(c capability.Claims, i int) (Token, error) {
	payload, err := c.Payload()
	if err != nil {
		return Token{}, fault.Wrap(err, fault.Internal, op)
	}
	compact, kid, err := m.cfg.Signer.Sign(capability.TokenType, payload)
	if err != nil {
		return Token{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	if len(compact) > capability.MaxTokenBytes {
		return Token{}, fault.New(fault.RequestTooLarge, op, fault.Detail(fmt.Sprintf("scopes[%d]: the capability would be larger than 8 KiB; name fewer tools or handles", i)))
	}
	return Token{Audience: c.Audience, ID: c.ID, ExpiresAt: c.Expiry, compact: compact, kid: kid}, nil
}

// audit writes the one line of each capability. It has digests where a value
// could tell something about somebody, and never the token.
func (m *Minter) audit(ctx context.Context, c capability.Claims, t Token) {
	m.cfg.Logger.InfoContext(ctx, "capability minted",
		slog.String("jti", c.ID),
		slog.String("audience", string(c.Audience)),
		slog.String("kid", t.kid),
		slog.String("subject_digest", digest(c.Subject.String())),
		slog.String("act_digest", digest(c.Actor.String())),
		slog.String("binding_digest", digest(c.BindingID)),
		slog.Uint64("epoch", uint64(c.Epoch)),
		slog.Uint64("lease_generation", uint64(c.Generation)),
		slog.String("run_digest", digest(c.RunID)),
		slog.Time("expires_at", c.Expiry),
	)
}

// digest is the first 16 hex digits of SHA-256, and "" of "".
func digest(s string) string {
	if s == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
