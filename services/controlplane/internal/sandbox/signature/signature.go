// Package signature verifies, without a network, that the operator's key signed the
// image of a sandbox.
//
// A signature is a Sigstore bundle with a DSSE envelope around an in-toto statement,
// whose subject is the digest of the image, as cosign and this project's image tool
// write it. What is trusted is one public key that the operator names: no certificate
// authority, no transparency log and no clock takes part, so that nothing has to be
// reached, and nothing expires, when a sandbox is claimed.
package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
)

const (
	// MaxBundle bounds a bundle and maxKey a public key, in bytes.
	MaxBundle = 64 << 10
	maxKey    = 8 << 10
	// PredicateType is that of a signature. A bundle with another one says something
	// else of an image, such as what is in it, and not that it may run.
	PredicateType = "https://sigstore.dev/cosign/sign/v1"
)

// The refusals of Verify. Each is wrapped with its cause.
var (
	ErrBundle    = errors.New("the signature is no Sigstore bundle")
	ErrRefused   = errors.New("the signature is not one of this key for this image digest")
	ErrPredicate = errors.New("the bundle does not say that the image is signed")
	ErrDigest    = errors.New("not an image digest: sha256: and 64 hexadecimal digits")
	errKey       = errors.New("a public key in PEM form: ECDSA on P-256, P-384 or P-521, or Ed25519")
)

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Key is the operator's public key. Its zero value verifies nothing.
type Key struct{ verifier sigstore.Verifier }

// ParseKey reads one public key in PEM form.
func ParseKey(pem []byte) (Key, error) {
	if len(pem) > maxKey {
		return Key{}, errKey
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(pem)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", errKey, err)
	}
	switch public.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return Key{}, errKey // RSA needs a choice of padding that a file does not tell
	}
	v, err := sigstore.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", errKey, err)
	}
	return Key{v}, nil
}

// Signature is a bundle together with the key that has to have made it.
type Signature struct {
	key    Key
	bundle []byte
}

// New takes a bundle, which Verify reads.
func New(key Key, bundle []byte) *Signature { return &Signature{key, bundle} }

// Load reads both from files.
func Load(bundleFile, publicKeyFile string) (*Signature, error) {
	pem, err := read(publicKeyFile, maxKey)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	key, err := ParseKey(pem)
	if err != nil {
		return nil, fmt.Errorf("public key: %s: %w", publicKeyFile, err)
	}
	raw, err := read(bundleFile, MaxBundle)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	return New(key, raw), nil
}

func read(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return raw, err
}

// Verify returns nil where the bundle holds a signature of the key over a statement
// whose subject is this very digest. Errors: those of this package.
func (s *Signature) Verify(digest string) error {
	if !digestPattern.MatchString(digest) {
		return ErrDigest
	}
	want, err := hex.DecodeString(digest[len("sha256:"):])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDigest, err)
	}
	if s.key.verifier == nil {
		return errKey
	}
	if len(s.bundle) > MaxBundle {
		return fmt.Errorf("%w: more than %d bytes", ErrBundle, MaxBundle)
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(s.bundle); err != nil {
		return fmt.Errorf("%w: %w", ErrBundle, err)
	}
	verifier, err := verify.NewVerifier(trusted(s.key), verify.WithNoObserverTimestamps())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	result, err := verifier.Verify(&b, verify.NewPolicy(verify.WithArtifactDigest("sha256", want), verify.WithKey()))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if result.Statement == nil || result.Statement.GetPredicateType() != PredicateType {
		return ErrPredicate
	}
	return nil
}

// trusted is the one key, by whatever hint a bundle names it, and at any time: an
// operator ends a key by taking it out of the profile.
func trusted(key Key) root.TrustedMaterial {
	always := root.NewExpiringKey(key.verifier, time.Time{}, time.Time{})
	return root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return always, nil })
}
