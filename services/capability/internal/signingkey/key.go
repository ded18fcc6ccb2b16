// Package signingkey has the keys that sign capabilities, and the file they are
// kept in. It is the only place of Cofferdam that reads one.
package signingkey

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
)

// Key is one Ed25519 key. However it is printed or logged, only its kid shows.
type Key struct {
	id string
	// private is a function because fmt prints unexported fields without asking
	// their methods, also from deep inside another value.
	private func() ed25519.PrivateKey
}

func newKey(id string, private ed25519.PrivateKey) Key {
	return Key{id: id, private: func() ed25519.PrivateKey { return private }}
}

// New makes a key. Its kid is the thumbprint of RFC 7638 with SHA-256.
func New() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("signing key: %w", err)
	}
	sum, err := (&jose.JSONWebKey{Key: private.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		return Key{}, fmt.Errorf("signing key: thumbprint: %w", err)
	}
	return newKey(base64.RawURLEncoding.EncodeToString(sum), private), nil
}

// ID is the kid.
func (k Key) ID() string { return k.id }

// Format implements fmt.Formatter for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "signing key "+k.id) }

// LogValue implements slog.LogValuer.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.id) }

// Ring holds the keys of the service. The first one signs; all are published, so
// that receivers know a key before it signs and still know it after it did.
type Ring struct {
	keys   []Key
	signer jose.Signer
	public []byte
	parsed capability.KeySet
}

// NewRing takes 1 to [capability.MaxKeys] keys with different kids.
func NewRing(keys ...Key) (*Ring, error) {
	if len(keys) == 0 {
		return nil, errors.New("signing keys: there is none")
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: capability.Algorithm, Key: jose.JSONWebKey{Key: keys[0].private(), KeyID: keys[0].id}},
		(&jose.SignerOptions{}).WithType(capability.TokenType))
	if err != nil {
		return nil, errors.New("signing keys: the first key cannot sign")
	}
	var set jose.JSONWebKeySet
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private().Public(), KeyID: k.id, Algorithm: string(capability.Algorithm), Use: "sig"})
	}
	public, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	// What receivers will make of it: kids, bounds, and that nothing private is in it.
	parsed, err := capability.ParseKeySet(public)
	if err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	if parsed.Len() != len(keys) {
		return nil, errors.New("signing keys: receivers would not take every key; a kid is 1 to 128 of [A-Za-z0-9._:-]")
	}
	return &Ring{keys: keys, signer: signer, public: public, parsed: parsed}, nil
}

// Sign makes a capability of a payload, as a compact JWS.
func (r *Ring) Sign(payload []byte) (string, error) {
	signed, err := r.signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing keys: %w", err)
	}
	return signed.CompactSerialize()
}

// Key implements capability.Keys: the public half of one of the keys.
func (r *Ring) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	return r.parsed.Key(ctx, kid)
}

// SignerID is the kid of the key that signs.
func (r *Ring) SignerID() string { return r.keys[0].id }

// Len is the number of keys.
func (r *Ring) Len() int { return len(r.keys) }

// JWKS is the JWK set (RFC 7517) of the public halves.
func (r *Ring) JWKS() []byte { return r.public }
