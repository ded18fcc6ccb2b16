package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/controlplane/internal/sandbox/signature"
	"cofferdam.dev/services/controlplane/internal/sandbox/signature/signaturetest"
)

var (
	digest = "sha256:" + strings.Repeat("a1", 32)
	other  = "sha256:" + strings.Repeat("b2", 32)
)

// An image runs only where the operator's key signed this very digest.
func TestOnlyTheKeyAndTheDigest(t *testing.T) {
	signer, another := signaturetest.NewSigner(t), signaturetest.NewSigner(t)
	for name, row := range map[string]struct {
		bundle []byte
		want   error
	}{
		"signed":           {signer.Sign(t, digest), nil},
		"another digest":   {signer.Sign(t, other), signature.ErrRefused},
		"another key":      {another.Sign(t, digest), signature.ErrRefused},
		"unsigned":         {[]byte(`{}`), signature.ErrBundle},
		"nothing":          {nil, signature.ErrBundle},
		"garbage":          {[]byte("\x00\xff{"), signature.ErrBundle},
		"too large":        {append(signer.Sign(t, digest), make([]byte, signature.MaxBundle)...), signature.ErrBundle},
		"no signature":     {signer.Edit(t, digest, func(b map[string]any) { envelope(b)["signatures"] = []any{} }), signature.ErrBundle},
		"other predicate":  {signer.SignAs(t, digest, "https://spdx.dev/Document"), signature.ErrPredicate},
		"other payload":    {signer.Edit(t, digest, func(b map[string]any) { envelope(b)["payload"] = []byte(payloadOf(t, signer.Sign(t, other))) }), signature.ErrRefused},
		"no envelope":      {signer.Edit(t, digest, func(b map[string]any) { delete(b, "dsseEnvelope") }), signature.ErrBundle},
		"other media type": {signer.Edit(t, digest, func(b map[string]any) { b["mediaType"] = "application/json" }), signature.ErrBundle},
	} {
		err := signature.New(signer.Key, row.bundle).Verify(digest)
		if row.want == nil && err != nil || row.want != nil && !errors.Is(err, row.want) && !errors.Is(err, signature.ErrRefused) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
		if row.want != nil && err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	signed := signature.New(signer.Key, signer.Sign(t, digest))
	for _, d := range []string{"", "sha256:", strings.ToUpper(digest), digest + "0", "sha512:" + strings.Repeat("a1", 64), other} {
		if signed.Verify(d) == nil {
			t.Errorf("digest %q: accepted", d)
		}
	}
	if signature.New(signature.Key{}, signer.Sign(t, digest)).Verify(digest) == nil {
		t.Error("no key: accepted")
	}
}

// What signs is a key that verifies in one way only, and files are bounded.
func TestFiles(t *testing.T) {
	signer := signaturetest.NewSigner(t)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bundle, key := file("bundle", signer.Sign(t, digest)), file("key", signer.PEM)
	s, err := signature.Load(bundle, key)
	if err != nil || s.Verify(digest) != nil {
		t.Fatalf("%v", err)
	}
	large := make([]byte, signature.MaxBundle+1)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaPEM, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	privatePEM, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][2]string{
		"no bundle":     {filepath.Join(dir, "none"), key},
		"no key":        {bundle, filepath.Join(dir, "none")},
		"large bundle":  {file("large", large), key},
		"large key":     {bundle, file("large-key", large)},
		"no PEM":        {bundle, bundle},
		"RSA":           {bundle, file("rsa", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaPEM}))},
		"a private key": {bundle, file("private", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: privatePEM}))},
	} {
		if _, err := signature.Load(row[0], row[1]); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever a bundle is, it is refused unless it is the one that was signed.
func FuzzVerify(f *testing.F) {
	signer := signaturetest.NewSigner(f)
	right := signer.Sign(f, digest)
	f.Add(right)
	f.Add(signer.Sign(f, other))
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}`))
	f.Add([]byte(`{"dsseEnvelope":{"payload":"","payloadType":"","signatures":[{"sig":""}]}}`))
	want := payloadOf(f, right)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if signature.New(signer.Key, raw).Verify(digest) == nil && payloadOf(t, raw) != want {
			t.Errorf("accepted: %s", raw)
		}
	})
}

func envelope(b map[string]any) map[string]any {
	e, _ := b["dsseEnvelope"].(map[string]any)
	return e
}

func payloadOf(t testing.TB, raw []byte) string {
	t.Helper()
	var b struct {
		Envelope struct {
			Payload []byte `json:"payload"`
		} `json:"dsseEnvelope"`
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	return string(b.Envelope.Payload)
}
