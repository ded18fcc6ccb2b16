package capability

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/strictjson"
)

// ErrUnknownKey says that no key has the kid of a token.
var ErrUnknownKey = errors.New("capability: unknown key")

// Keys finds the public key of a kid.
type Keys interface {
	// Key returns [ErrUnknownKey] where it is certain that there is no such key,
	// and another error where it could not find out.
	Key(ctx context.Context, kid string) (ed25519.PublicKey, error)
}

// Bounds of a JWK set.
const (
	// MaxKeySetBytes bounds a JWK set, in bytes of JSON.
	MaxKeySetBytes = 64 << 10
	// MaxKeys bounds how many keys it holds.
	MaxKeys = 32
)

// KeySet is a JWK set (RFC 7517) that does not change. The zero KeySet is empty.
type KeySet struct {
	keys map[string]ed25519.PublicKey
}

// ParseKeySet takes the Ed25519 keys out of a JWK set and skips keys of other
// kinds or uses, which are no business of ours. It refuses a set that is ambiguous (a
// kid twice), that publishes a private key, that is out of bounds, or that has
// no key for us.
func ParseKeySet(data []byte) (KeySet, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	err := strictjson.Unmarshal(data, &doc, strictjson.Options{MaxBytes: MaxKeySetBytes, MaxDepth: 4, RequireFields: true})
	if err != nil {
		return KeySet{}, fmt.Errorf("capability: JWK set: %w", err)
	}
	if len(doc.Keys) > MaxKeys {
		return KeySet{}, fmt.Errorf("capability: JWK set has more than %d keys", MaxKeys)
	}
	set := KeySet{keys: make(map[string]ed25519.PublicKey, len(doc.Keys))}
	for _, raw := range doc.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil {
			continue // a kind of key that go-jose does not know, or a weak one
		}
		if _, private := k.Key.(ed25519.PrivateKey); private {
			return KeySet{}, errors.New("capability: JWK set publishes a private key")
		}
		pub, ok := k.Key.(ed25519.PublicKey)
		if !ok || !isName(k.KeyID) || (k.Use != "" && k.Use != "sig") || (k.Algorithm != "" && k.Algorithm != string(Algorithm)) {
			continue
		}
		if _, twice := set.keys[k.KeyID]; twice {
			return KeySet{}, errors.New("capability: JWK set has a kid twice")
		}
		set.keys[k.KeyID] = pub
	}
	if len(set.keys) == 0 {
		return KeySet{}, errors.New("capability: JWK set has no Ed25519 key")
	}
	return set, nil
}

// Key implements [Keys]; its only error is [ErrUnknownKey].
func (s KeySet) Key(_ context.Context, kid string) (ed25519.PublicKey, error) {
	pub, ok := s.keys[kid]
	if !ok {
		return nil, ErrUnknownKey
	}
	return pub, nil
}

// Len is the number of keys.
func (s KeySet) Len() int { return len(s.keys) }
