package capability_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
)

func jwks(t *testing.T, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newPair(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pub, key
}

func TestKeySetTakesOnlyEd25519SigningKeys(t *testing.T) {
	pub, _ := newPair(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := capability.ParseKeySet(jwks(t,
		jose.JSONWebKey{Key: pub, KeyID: "good", Algorithm: "EdDSA", Use: "sig"},
		jose.JSONWebKey{Key: pub, KeyID: "bare"},
		jose.JSONWebKey{Key: pub, KeyID: "enc", Use: "enc"},
		jose.JSONWebKey{Key: pub, KeyID: "alg", Algorithm: "HS256"},
		jose.JSONWebKey{Key: pub},
		jose.JSONWebKey{Key: &ec.PublicKey, KeyID: "ec", Use: "sig"},
		jose.JSONWebKey{Key: []byte("a shared secret"), KeyID: "oct", Use: "sig"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for kid, want := range map[string]bool{"good": true, "bare": true, "enc": false, "alg": false, "": false, "ec": false, "oct": false} {
		got, err := set.Key(t.Context(), kid)
		if want != (err == nil) || (want && !got.Equal(pub)) {
			t.Errorf("key %q: %v, error %v, want found = %v", kid, got, err, want)
		}
		if !want && !errors.Is(err, capability.ErrUnknownKey) {
			t.Errorf("key %q: error = %v, want ErrUnknownKey", kid, err)
		}
	}
	if set.Len() != 2 {
		t.Errorf("%d keys, want 2", set.Len())
	}
}

func TestKeySetThatIsRefused(t *testing.T) {
	pub, private := newPair(t)
	other, _ := newPair(t)
	many := make([]jose.JSONWebKey, capability.MaxKeys+1)
	for i := range many {
		many[i] = jose.JSONWebKey{Key: pub, KeyID: fmt.Sprint("k", i)}
	}
	weak := base64.RawURLEncoding.EncodeToString(make([]byte, ed25519.PublicKeySize)) // a point of low order: signatures prove nothing
	for name, data := range map[string][]byte{
		"empty":             {},
		"not JSON":          []byte("<html>"),
		"no keys":           []byte(`{}`),
		"an empty list":     []byte(`{"keys":[]}`),
		"keys twice":        []byte(`{"keys":[],"keys":[]}`),
		"unknown member":    []byte(`{"keys":[],"more":1}`),
		"a private key":     jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}, jose.JSONWebKey{Key: private, KeyID: "b"}),
		"a kid twice":       jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}, jose.JSONWebKey{Key: other, KeyID: "a"}),
		"too many":          jwks(t, many...),
		"a weak key":        fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"w","x":"%s"}]}`, weak),
		"a member twice":    fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","kid":"b","x":"%s"}]}`, base64.RawURLEncoding.EncodeToString(pub)),
		"data after it":     append(jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}), "{}"...),
		"larger than 64 KB": append(jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}), strings.Repeat(" ", capability.MaxKeySetBytes)...),
	} {
		t.Run(name, func(t *testing.T) {
			if set, err := capability.ParseKeySet(data); err == nil {
				t.Errorf("accepted, with %d keys", set.Len())
			}
		})
	}
}

// The parser of sets has its own fuzz target; what it accepts it can also find.
func FuzzKeySet(f *testing.F) {
	f.Add(capabilitytest.NewMinter(f).JWKS())
	f.Add([]byte(`{"keys":[{"kty":"OKP"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},null,1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := capability.ParseKeySet(data)
		if (err == nil) != (set.Len() > 0) {
			t.Errorf("%d keys, error %v", set.Len(), err)
		}
	})
}
