package mint

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
)

// AssertionTTL is how long an assertion lives, at most: it is asked for right
// before it is shown to its token endpoint.
const AssertionTTL = time.Minute

// asserter is the one service that may have assertions: ToolBroker, for the tools
// that are called with a token of the subject's.
func asserter(td spiffeid.TrustDomain) spiffeid.ID { return identity.Service(td, "toolbroker") }

// Asserters are asserter as a list of callers.
func Asserters(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.Exactly(asserter(td))}
}

// AssertRequest presents a sandbox's capability.
type AssertRequest struct {
	// Holder is the service that asks, as it has proved itself.
	Holder spiffeid.ID
	// Token is the compact form of the sandbox's capability.
	Token string
	// Audience is the token endpoint.
	Audience string
}

// assertion is the claims set of an assertion: the subject token of RFC 8693,
// section 2.1. act is who shows it there (section 4.1), and organization the
// subject's, which is a part of who it is.
type assertion struct {
	Issuer       string        `json:"iss"`
	Subject      string        `json:"sub"`
	Organization string        `json:"organization,omitempty"`
	Audience     string        `json:"aud"`
	Actor        assertedActor `json:"act"`
	ID           string        `json:"jti"`
	IssuedAt     int64         `json:"iat"`
	NotBefore    int64         `json:"nbf"`
	Expiry       int64         `json:"exp"`
}

type assertedActor struct {
	Subject string `json:"sub"`
}

// Assert signs an assertion about the committed subject of a run, for one of the
// listed token endpoints. It is for ToolBroker, which has to show the sandbox's
// capability: so it gets one only for a run that calls tools, and only while that
// is committed and its end open. What it says of the subject is in the record, and
// neither the sandbox nor ToolBroker has a say in it.
//
// Errors: caller_not_allowed, audience_mismatch (the audience is not listed, or the
// token is for another service), those of capability.Verifier.Verify,
// capability_scope, stale_lease, sandbox_not_ready, cancelled, deadline_exceeded,
// dependency_unavailable.
func (m *Minter) Assert(ctx context.Context, g fence.Grant, req AssertRequest) (Token, error) {
	const op = "mint.Assert"
	if err := g.Validate(); err != nil {
		return Token{}, err
	}
	env := g.Envelope()
	if req.Holder != asserter(m.cfg.TrustDomain) {
		return Token{}, fault.Wrap(errors.New("not ToolBroker"), fault.CallerNotAllowed, op)
	}
	if !slices.Contains(m.cfg.TokenEndpoints, req.Audience) {
		return Token{}, fault.Wrap(errors.New("a token endpoint that is not listed"), fault.AudienceMismatch, op)
	}
	record, err := m.load(ctx, env.BindingID)
	if err != nil {
		return Token{}, err
	}
	now := m.cfg.Now()
	sandbox, expiry, err := m.authorizeExchange(record, env, now)
	if err != nil {
		return Token{}, err
	}
	shown, err := m.verifier.Verify(ctx, req.Token, capability.ToolBroker, sandbox)
	if err != nil {
		return Token{}, err
	}
	if err := shown.Matches(env); err != nil {
		return Token{}, err
	}
	expiry = earlier(expiry, earlier(now.Add(AssertionTTL), shown.Expiry)).Truncate(time.Second)
	if expiry.Unix() <= now.Unix() { // less than a second is left
		return Token{}, fault.New(fault.DeadlineExceeded, op)
	}
	if record.Identity.Subject == "" {
		return Token{}, fault.Wrap(errors.New("a record without a subject"), fault.Internal, op)
	}
	id := "asr_" + rand.Text()
	payload, err := json.Marshal(assertion{
		Issuer: m.cfg.Issuer, Subject: record.Identity.Subject, Organization: record.Identity.Organization, Audience: req.Audience,
		Actor: assertedActor{req.Holder.String()}, ID: id, IssuedAt: now.Unix(), NotBefore: now.Unix(), Expiry: expiry.Unix(),
	})
	if err != nil {
		return Token{}, fault.Wrap(err, fault.Internal, op)
	}
	compact, kid, err := m.cfg.Signer.Sign(capability.AssertionType, payload)
	if err != nil {
		return Token{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	t := Token{ID: id, ExpiresAt: expiry, compact: compact, kid: kid}
	m.cfg.Logger.InfoContext(ctx, "subject asserted",
		slog.String("jti", id), slog.String("audience", req.Audience), slog.String("kid", kid),
		slog.String("binding_digest", digest(env.BindingID)), slog.String("run_digest", digest(env.RunID)), slog.Time("expires_at", expiry),
	)
	return t, nil
}
