package main

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

type keyPair struct{ private, public string }

func newKey(t *testing.T) keyPair {
	t.Helper()
	folder := t.TempDir()
	key := keyPair{filepath.Join(folder, "key.pem"), filepath.Join(folder, "key.pub")}
	if err := run(t.Context(), []string{"keygen", "--private", key.private, "--public", key.public}, nil, nil); err != nil {
		t.Fatal(err)
	}
	return key
}

// verifyBundle does what the control plane does, with sigstore's own code, which
// shares none with what it judges here.
func verifyBundle(t *testing.T, text []byte, public string, digest v1.Hash) error {
	t.Helper()
	content, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(content)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(loaded, time.Time{}, time.Time{}), nil
	})
	verifier, err := verify.NewVerifier(material, verify.WithNoObserverTimestamps())
	if err != nil {
		t.Fatal(err)
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(text); err != nil {
		return err
	}
	sum, err := hex.DecodeString(digest.Hex)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verifier.Verify(&b, verify.NewPolicy(verify.WithArtifactDigest("sha256", sum), verify.WithKey()))
	return err
}

// TestSignatureIsWhatSigstoreTakes shows that sigstore-go takes a bundle for its
// image, and refuses it for another image, another key, and once it was changed.
func TestSignatureIsWhatSigstoreTakes(t *testing.T) {
	key, other := newKey(t), newKey(t)
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	path := filepath.Join(t.TempDir(), "bundle.json")
	image := "registry.example/worker@" + digest.String()
	if err := run(t.Context(), []string{"sign", "--key", key.private, "--image", image, "--bundle", path}, nil, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyBundle(t, text, key.public, digest); err != nil {
		t.Errorf("refused: %v", err)
	}
	if err := verifyBundle(t, text, key.public, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("cd", 32)}); err == nil {
		t.Error("taken for another image")
	}
	if err := verifyBundle(t, text, other.public, digest); err == nil {
		t.Error("taken with another key")
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	forged, err := sign(other.private, digest)
	if err != nil {
		t.Fatal(err)
	}
	var foreign map[string]json.RawMessage
	if err := json.Unmarshal(forged, &foreign); err != nil {
		t.Fatal(err)
	}
	parts["dsseEnvelope"] = foreign["dsseEnvelope"] // with the hint of the right key
	changed, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyBundle(t, changed, key.public, digest); err == nil {
		t.Error("taken with an envelope of another key")
	}
	again, err := sign(key.private, digest)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, text) {
		t.Error("signed twice, the bundles differ")
	}
}

// TestKeysStaySecret shows that a key is only its owner's, is not written over, and
// is in no error.
func TestKeysStaySecret(t *testing.T) {
	key := newKey(t)
	info, err := os.Stat(key.private)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	if err := keygen(key.private, key.public); err == nil {
		t.Error("written over")
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	if err := os.Chmod(key.private, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := sign(key.private, digest); err == nil {
		t.Error("signed with a key that others may read")
	}
	broken := filepath.Join(t.TempDir(), "key.pem")
	const canary = "Y2FuYXJ5Y2FuYXJ5"
	if err := os.WriteFile(broken, []byte("-----BEGIN PRIVATE KEY-----\n"+canary+"\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sign(broken, digest); err == nil || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "canary") {
		t.Errorf("the error of a broken key: %v", err)
	}
	if err := run(t.Context(), []string{"sign", "--key", key.private, "--image", "worker:latest", "--bundle", broken}, nil, nil); err == nil {
		t.Error("signed a tag")
	}
}
