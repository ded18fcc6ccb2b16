// Package authn verifies the bearer tokens of the public API: JWTs of one OIDC
// issuer, with issuer, audience and algorithm pinned. The token is dropped here;
// what goes on is who the caller is.
package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam.dev/pkg/fault"
)

const (
	// maxTokenBytes bounds a bearer token.
	maxTokenBytes = 16 << 10
	// clockSkew is forgiven for iat and nbf, not for exp.
	clockSkew     = 5 * time.Second
	maxSubject    = 256
	defaultOrg    = "default"
	bearerScheme  = "Bearer "
	authorization = "Authorization"
)

// Caller is who a token speaks for.
type Caller struct {
	Subject      string
	Organization string
}

// Keys gives the issuer's public keys.
type Keys interface {
	// Keys with the id, or none.
	Keys(ctx context.Context, kid string) ([]jose.JSONWebKey, error)
}

// Config of a Verifier.
type Config struct {
	Issuer   string
	Audience string
	// Algorithms that are accepted, such as RS256, ES256 or EdDSA.
	Algorithms []jose.SignatureAlgorithm
	Keys       Keys
	Now        func() time.Time
}

// Verifier verifies bearer tokens.
type Verifier struct{ cfg Config }

// New makes a Verifier. Symmetric algorithms and none are refused: with them
// whoever can verify could sign.
func New(cfg Config) (*Verifier, error) {
	if cfg.Issuer == "" || cfg.Audience == "" || cfg.Keys == nil || len(cfg.Algorithms) == 0 {
		return nil, errors.New("authn: issuer, audience, algorithms and keys are required")
	}
	for _, a := range cfg.Algorithms {
		if !slices.Contains(Asymmetric(), a) {
			return nil, fmt.Errorf("authn: algorithm %q is not one of %v", a, Asymmetric())
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{cfg}, nil
}

// Asymmetric are the algorithms that a Verifier may be given.
func Asymmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA}
}

// Request verifies the bearer token of a request. Every failure is
// unauthenticated; the detail says what to do.
func (v *Verifier) Request(r *http.Request) (Caller, error) {
	headers := r.Header.Values(authorization)
	if len(headers) != 1 {
		return Caller{}, refuse(nil, "Authorization: send exactly one, Bearer and a token")
	}
	h := headers[0]
	if len(h) <= len(bearerScheme) || !strings.EqualFold(h[:len(bearerScheme)], bearerScheme) {
		return Caller{}, refuse(nil, "Authorization: Bearer and a token")
	}
	return v.Token(r.Context(), strings.TrimSpace(h[len(bearerScheme):]))
}

type claims struct {
	jwt.Claims
	Organization string `json:"org"`
}

// OneTime verifies a token that is good for one use, and gives its id, by which
// whoever takes it knows it again, and until when it is good.
func (v *Verifier) OneTime(ctx context.Context, raw string) (c Caller, id string, until time.Time, err error) {
	claims, err := v.verify(ctx, raw)
	if err != nil {
		return Caller{}, "", time.Time{}, err
	}
	return claims.caller(), claims.ID, claims.Expiry.Time(), nil
}

// Token verifies a token.
func (v *Verifier) Token(ctx context.Context, raw string) (Caller, error) {
	claims, err := v.verify(ctx, raw)
	if err != nil {
		return Caller{}, err
	}
	return claims.caller(), nil
}

func (c claims) caller() Caller {
	if c.Organization == "" {
		c.Organization = defaultOrg
	}
	return Caller{Subject: c.Subject, Organization: c.Organization}
}

func (v *Verifier) verify(ctx context.Context, raw string) (claims, error) {
	if raw == "" || len(raw) > maxTokenBytes {
		return claims{}, refuse(nil, "token: at most 16 KiB")
	}
	tok, err := jwt.ParseSigned(raw, v.cfg.Algorithms)
	if err != nil || len(tok.Headers) != 1 {
		return claims{}, refuse(err, "token: a signed JWT with an accepted algorithm")
	}
	keys, err := v.cfg.Keys.Keys(ctx, tok.Headers[0].KeyID)
	if err != nil {
		return claims{}, fault.Wrap(err, fault.DependencyUnavailable, "authn.Token")
	}
	c, err := verified(tok, keys)
	if err != nil {
		return claims{}, refuse(err, "token: signed by a key of the issuer")
	}
	if err := v.times(c); err != nil {
		return claims{}, err
	}
	switch {
	case c.Issuer != v.cfg.Issuer:
		return claims{}, refuse(nil, "token: another issuer")
	case len(c.Audience) != 1 || c.Audience[0] != v.cfg.Audience:
		return claims{}, refuse(nil, "token: another audience")
	case c.Subject == "" || len(c.Subject) > maxSubject || len(c.Organization) > maxSubject:
		return claims{}, refuse(nil, "token: sub is required, at most 256 bytes")
	}
	return c, nil
}

func (v *Verifier) times(c claims) error {
	now := v.cfg.Now()
	switch {
	case c.Expiry == nil || !now.Before(c.Expiry.Time()):
		return refuse(nil, "token: expired; get a new one")
	case c.NotBefore != nil && now.Add(clockSkew).Before(c.NotBefore.Time()):
		return refuse(nil, "token: not valid yet")
	case c.IssuedAt != nil && now.Add(clockSkew).Before(c.IssuedAt.Time()):
		return refuse(nil, "token: issued in the future; check the clocks")
	}
	return nil
}

// verified tries the keys of the token's kid: an issuer may publish several.
func verified(tok *jwt.JSONWebToken, keys []jose.JSONWebKey) (claims, error) {
	err := errors.New("no such key")
	for _, k := range keys {
		if !k.IsPublic() || !k.Valid() || (k.Algorithm != "" && k.Algorithm != tok.Headers[0].Algorithm) {
			continue
		}
		var c claims
		if err = tok.Claims(k.Key, &c); err == nil {
			return c, nil
		}
	}
	return claims{}, err
}

func refuse(cause error, detail string) error {
	return fault.Wrap(cause, fault.Unauthenticated, "authn", fault.Detail(detail))
}

// ParseJWKS reads a JWK set and refuses one with private keys in it.
func ParseJWKS(raw []byte) (jose.JSONWebKeySet, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil {
		return set, fmt.Errorf("authn: JWK set: %w", err)
	}
	for _, k := range set.Keys {
		if !k.IsPublic() {
			return set, fmt.Errorf("authn: JWK set: key %q is not a public key", k.KeyID)
		}
	}
	return set, nil
}
