package capability

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
)

// ClockSkew is how far iat and nbf may lie in the future. exp has none.
const ClockSkew = 5 * time.Second

// Config is what a Verifier needs.
type Config struct {
	// Issuer is the exact iss of every token.
	Issuer string
	// Keys has the issuer's public keys.
	Keys Keys
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Verifier checks tokens. It is safe for concurrent use and remembers nothing
// about the tokens that it saw.
type Verifier struct {
	issuer string
	keys   Keys
	now    func() time.Time
}

// NewVerifier refuses a configuration without an issuer or without keys.
func NewVerifier(cfg Config) (*Verifier, error) {
	if cfg.Issuer == "" || cfg.Keys == nil {
		return nil, errors.New("capability: a verifier needs an issuer and keys")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{issuer: cfg.Issuer, keys: cfg.Keys, now: cfg.Now}, nil
}

// Verify checks a token for the audience aud. subject is the sandbox that has to
// stand behind it, from the handshake and never from the request: a service
// passes its TLS peer; a worker, which is called by the control plane with a
// token about itself, passes its own SPIFFE ID.
//
// The checks run in the order of the package documentation, and nothing of the
// payload is decoded before its signature is verified. Errors:
// capability_missing, capability_invalid (also another issuer's, another
// sandbox's, one from the future, or one with a claim that is not its
// audience's), audience_mismatch, capability_expired, dependency_unavailable
// where the key could not be had, and cancelled or deadline_exceeded where ctx
// ended first. Whether the claims fit the request is for [Claims.Matches] and
// the fence.
func (v *Verifier) Verify(ctx context.Context, token string, aud Audience, subject spiffeid.ID) (Claims, error) {
	if token == "" {
		return Claims{}, fault.New(fault.CapabilityMissing, opVerify)
	}
	signed, kid, err := parseToken(token)
	if err != nil {
		return Claims{}, refuse(err)
	}
	key, err := v.keys.Key(ctx, kid)
	switch {
	case errors.Is(err, ErrUnknownKey):
		return Claims{}, refuse(err)
	case err != nil && ctx.Err() != nil:
		return Claims{}, fault.From(ctx.Err(), opVerify)
	case err != nil:
		return Claims{}, fault.Wrap(err, fault.DependencyUnavailable, opVerify)
	}
	data, err := signed.Verify(key)
	if err != nil {
		return Claims{}, refuse(errors.New("signature does not verify"))
	}
	c, err := parsePayload(data)
	if err != nil {
		return Claims{}, refuse(err)
	}
	if err := v.check(c, aud, subject); err != nil {
		return Claims{}, err
	}
	return c, nil
}

func (v *Verifier) check(c Claims, aud Audience, subject spiffeid.ID) error {
	now := v.now()
	latest := now.Add(ClockSkew)
	switch {
	case c.Issuer != v.issuer:
		return refuse(errors.New("another issuer"))
	case c.Audience != aud:
		return fault.New(fault.AudienceMismatch, opVerify)
	case c.IssuedAt.After(latest):
		return refuse(errors.New("iat is in the future"))
	case c.NotBefore.After(latest):
		return refuse(errors.New("nbf is in the future"))
	case !now.Before(c.Expiry):
		return fault.New(fault.CapabilityExpired, opVerify)
	case subject.IsZero() || c.Subject != subject:
		return refuse(errors.New("another sandbox's"))
	default:
		return nil
	}
}

const opVerify = "capability.Verify"

// refuse keeps the reason for the log. A caller learns only that the token is
// invalid: what exactly is wrong helps nobody who may use it.
func refuse(reason error) error {
	return fault.Wrap(fmt.Errorf("token refused: %w", reason), fault.CapabilityInvalid, opVerify)
}
