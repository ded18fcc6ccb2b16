// Package signaturetest signs images as an operator's release does.
package signaturetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/services/controlplane/internal/sandbox/signature"
)

const payloadType = "application/vnd.in-toto+json"

// Signer has a key pair of its own.
type Signer struct {
	private *ecdsa.PrivateKey
	// PEM is the public key, and Key the same.
	PEM []byte
	Key signature.Key
}

// NewSigner makes a key pair.
func NewSigner(t testing.TB) *Signer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	must(t, err)
	s := &Signer{private: private, PEM: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
	s.Key, err = signature.ParseKey(s.PEM)
	must(t, err)
	return s
}

// Sign gives the bundle of a digest, sha256:….
func (s *Signer) Sign(t testing.TB, digest string) []byte {
	t.Helper()
	return s.SignAs(t, digest, signature.PredicateType)
}

// Edit is Sign, and then a change that the signature does not cover, or should not.
func (s *Signer) Edit(t testing.TB, digest string, change func(bundle map[string]any)) []byte {
	t.Helper()
	var b map[string]any
	must(t, json.Unmarshal(s.Sign(t, digest), &b))
	change(b)
	return marshal(t, b)
}

// SignAs signs a statement with another predicate.
func (s *Signer) SignAs(t testing.TB, digest, predicateType string) []byte {
	t.Helper()
	payload := marshal(t, map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []any{map[string]any{"digest": map[string]any{"sha256": strings.TrimPrefix(digest, "sha256:")}}},
		"predicateType": predicateType,
		"predicate":     map[string]any{},
	})
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload))
	sig, err := ecdsa.SignASN1(rand.Reader, s.private, sum[:])
	must(t, err)
	return marshal(t, map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "operator"}},
		"dsseEnvelope": map[string]any{
			"payload": base64.StdEncoding.EncodeToString(payload), "payloadType": payloadType,
			"signatures": []any{map[string]any{"sig": base64.StdEncoding.EncodeToString(sig)}},
		},
	})
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return raw
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
