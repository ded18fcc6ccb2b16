package capability_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
)

// There is no cache of verdicts, by design: "cached" below is about the key. The
// three figures are what one request pays for its token.

func benchToken(b *testing.B) (*capabilitytest.Minter, string) {
	b.Helper()
	m := capabilitytest.NewMinter(b)
	c := capabilitytest.Claims(capability.ToolBroker, sandbox)
	c.Expiry = time.Now().Add(time.Hour)
	return m, m.Mint(c)
}

func verifyOnce(b *testing.B, v *capability.Verifier, token string) {
	b.Helper()
	if _, err := v.Verify(b.Context(), token, capability.ToolBroker, sandbox); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkVerify has the key set in memory from the start.
func BenchmarkVerify(b *testing.B) {
	m, token := benchToken(b)
	v := m.Verifier()
	b.ReportAllocs()
	for b.Loop() {
		verifyOnce(b, v, token)
	}
}

// BenchmarkVerifyCold is the first token that a process sees: it asks for the
// JWK set, over TLS and a connection that is open already.
func BenchmarkVerifyCold(b *testing.B) {
	m, token := benchToken(b)
	srv := httptest.NewTLSServer(m)
	defer srv.Close()
	b.ReportAllocs()
	for b.Loop() {
		keys := capability.NewRemoteKeys(srv.Client(), srv.URL+capability.JWKSPath)
		v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: keys})
		if err != nil {
			b.Fatal(err)
		}
		verifyOnce(b, v, token)
		_ = keys.Close()
	}
}

// BenchmarkVerifyCached is every later token: the key is known, the token is
// verified all the same.
func BenchmarkVerifyCached(b *testing.B) {
	m, token := benchToken(b)
	srv := httptest.NewTLSServer(m)
	defer srv.Close()
	keys := capability.NewRemoteKeys(srv.Client(), srv.URL+capability.JWKSPath)
	defer func() { _ = keys.Close() }()
	v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: keys})
	if err != nil {
		b.Fatal(err)
	}
	verifyOnce(b, v, token)
	b.ReportAllocs()
	for b.Loop() {
		verifyOnce(b, v, token)
	}
}
