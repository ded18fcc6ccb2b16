// Package signingkey has the keys that sign capabilities. It is the only place of
// Cofferdam that reads one.
//
// # How a key lives
//
// All replicas share one document in the store, with the keys encrypted by a key
// file that the store never sees. Each replica reads the document every 15
// seconds, and whichever sees first that a key is due, or not needed any more,
// writes it by a conditional write; the others read what stands. What a key does
// follows from the times in the document:
//
//   - next: it is published and does not sign yet, for as long as it takes until
//     every replica publishes it and every receiver has asked for the set again,
//     with the clocks of two replicas up to MaxSkew apart;
//   - active: it signs, until the next one's time has come;
//   - retiring: it is published and does not sign, until what it signed last has
//     expired. Then it is gone.
//
// A replica that could not read the document for StaleAfter neither signs nor
// publishes: what it tells could lack a key that another replica signs with.
//
// # When a key is known to somebody else
//
// Delete the document (SQLite: the row of capability_key_document; MongoDB: the
// document of capability_keys) and restart the replicas: a new key is made, and
// nothing that the old ones signed is taken any more, once receivers have asked
// for the set again (capability.DefaultRefreshAfter). Runs that are under way end.
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

// Ring holds keys, of which each can sign and all are published.
type Ring struct {
	keys []Key
	// signers of each key, by typ.
	signers []map[string]jose.Signer
	public  []byte
	parsed  capability.KeySet
}

// NewRing takes 1 to [capability.MaxKeys] keys with different kids.
func NewRing(keys ...Key) (*Ring, error) {
	if len(keys) == 0 {
		return nil, errors.New("signing keys: there is none")
	}
	r := &Ring{keys: keys}
	var set jose.JSONWebKeySet
	for _, k := range keys {
		signers := make(map[string]jose.Signer, 2)
		for _, typ := range []string{capability.TokenType, capability.AssertionType} {
			signer, err := jose.NewSigner(
				jose.SigningKey{Algorithm: capability.Algorithm, Key: jose.JSONWebKey{Key: k.private(), KeyID: k.id}},
				(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
			if err != nil {
				return nil, fmt.Errorf("signing keys: %s cannot sign", k.id)
			}
			signers[typ] = signer
		}
		r.signers = append(r.signers, signers)
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private().Public(), KeyID: k.id, Algorithm: string(capability.Algorithm), Use: "sig"})
	}
	var err error
	if r.public, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	// What receivers will make of it: kids, bounds, and that nothing private is in it.
	if r.parsed, err = capability.ParseKeySet(r.public); err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	if r.parsed.Len() != len(keys) {
		return nil, errors.New("signing keys: receivers would not take every key; a kid is 1 to 128 of [A-Za-z0-9._:-]")
	}
	return r, nil
}

// Sign makes a token of a typ of a payload with one of the keys, as a compact JWS,
// and gives its kid. There are two: capability.TokenType and AssertionType.
func (r *Ring) Sign(key int, typ string, payload []byte) (compact, kid string, err error) {
	signer, ok := r.signers[key][typ]
	if !ok {
		return "", "", errors.New("signing keys: no such type of token")
	}
	signed, err := signer.Sign(payload)
	if err == nil {
		compact, err = signed.CompactSerialize()
	}
	if err != nil {
		return "", "", fmt.Errorf("signing keys: %w", err)
	}
	return compact, r.keys[key].id, nil
}

// Key implements capability.Keys: the public half of one of the keys.
func (r *Ring) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	return r.parsed.Key(ctx, kid)
}

// JWKS is the JWK set (RFC 7517) of the public halves.
func (r *Ring) JWKS() []byte { return r.public }
