// Package capabilitytest mints capabilities for tests, good ones and every kind
// of broken one. Nothing outside of tests may import it.
package capabilitytest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
)

// Lifetime of what a Minter mints where the claims do not say otherwise.
const Lifetime = time.Minute

// Minter stands in for the capability service: one key, one issuer. It signs
// whatever it is told to. It is safe for concurrent use, and within fuzz targets.
type Minter struct {
	tb   testing.TB
	key  ed25519.PrivateKey
	kid  string
	jwks []byte
	keys capability.KeySet
}

// NewMinter makes a Minter with a fresh key.
func NewMinter(tb testing.TB) *Minter {
	tb.Helper()
	m := &Minter{tb: tb, key: newKey(tb), kid: "test-" + rand.Text()}
	var err error
	m.jwks, err = json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: m.key.Public(), KeyID: m.kid, Algorithm: string(jose.EdDSA), Use: "sig"},
	}})
	if err != nil {
		tb.Fatalf("JWK set: %v", err)
	}
	if m.keys, err = capability.ParseKeySet(m.jwks); err != nil {
		tb.Fatalf("JWK set: %v", err)
	}
	return m
}

// Issuer is the iss of every token.
func (m *Minter) Issuer() string { return "spiffe://cofferdam.test/svc/capability" }

// Keys has the one key.
func (m *Minter) Keys() capability.Keys { return m.keys }

// JWKS is the JWK set as the capability service publishes it.
func (m *Minter) JWKS() []byte { return m.jwks }

// ServeHTTP serves the JWK set at [capability.JWKSPath].
func (m *Minter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != capability.JWKSPath {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, _ = w.Write(m.jwks) // a client that has gone needs no answer
}

// Verifier trusts this Minter and uses the real clock.
func (m *Minter) Verifier() *capability.Verifier {
	v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: m.keys})
	if err != nil {
		m.tb.Fatalf("verifier: %v", err)
	}
	return v
}

// Claims are valid claims for a run, to change and to mint: the audience's
// required claims are there, with one value each.
func Claims(aud capability.Audience, subject spiffeid.ID) capability.Claims {
	c := capability.Claims{
		Audience:   aud,
		Subject:    subject,
		BindingID:  "hs_0123456789abcdef",
		Epoch:      0,
		Generation: 2,
		RunID:      "run_1",
	}
	switch aud {
	case capability.ToolBroker:
		c.Tools = []string{"fs.read_text_file"}
	case capability.Memory:
		c.MemoryScopes = []string{"user"}
	case capability.FileBroker:
		c.Handles = []string{"handle-1"}
	case capability.ModelProxy:
		c.ModelAlias = "demo"
	case capability.HarnessWorker, capability.ThreadState:
	}
	return c
}

// Mint signs the claims. ID, Issuer and times that are zero get good values; what
// is set stays as it is, also where it makes no sense. Options break the token.
func (m *Minter) Mint(c capability.Claims, opts ...Option) string {
	now := time.Now()
	if c.ID == "" {
		c.ID = "jti-" + rand.Text()
	}
	if c.Issuer == "" {
		c.Issuer = m.Issuer()
	}
	if c.IssuedAt.IsZero() {
		c.IssuedAt = now
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = now
	}
	if c.Expiry.IsZero() {
		c.Expiry = now.Add(Lifetime)
	}
	t := &Token{
		header:  map[string]any{"typ": capability.TokenType, "alg": string(capability.Algorithm), "kid": m.kid},
		payload: payload(c),
		sign:    func(input []byte) []byte { return ed25519.Sign(m.key, input) },
		minter:  m,
	}
	for _, o := range opts {
		o(t)
	}
	return t.compact()
}

// payload does not use [capability.Claims.Payload], which refuses what tests
// have to try, and so it also holds that encoding to account.
func payload(c capability.Claims) map[string]any {
	p := map[string]any{
		"iss": c.Issuer, "aud": string(c.Audience), "sub": c.Subject.String(), "jti": c.ID,
		"iat": c.IssuedAt.Unix(), "nbf": c.NotBefore.Unix(), "exp": c.Expiry.Unix(),
		"binding_id": c.BindingID, "epoch": c.Epoch, "lease_generation": c.Generation,
	}
	if c.RunID != "" {
		p["run_id"] = c.RunID
	}
	if !c.Actor.IsZero() {
		p["act"] = map[string]any{"sub": c.Actor.String()}
	}
	for name, list := range map[string][]string{"tools": c.Tools, "approve_tools": c.ApproveTools, "memory_scopes": c.MemoryScopes, "handles": c.Handles} {
		if len(list) > 0 {
			p[name] = list
		}
	}
	if c.ModelAlias != "" {
		p["model_alias"] = c.ModelAlias
	}
	return p
}

// Token is what an Option works on, before it is signed.
type Token struct {
	header         map[string]any
	payload        map[string]any
	rawHeader, raw []byte // header and payload as they are, where not nil
	sign           func(input []byte) []byte
	after          func(compact string) string
	minter         *Minter
}

func (t *Token) compact() string {
	input := t.minter.segment(t.header, t.rawHeader) + "." + t.minter.segment(t.payload, t.raw)
	out := input + "." + base64.RawURLEncoding.EncodeToString(t.sign([]byte(input)))
	if t.after != nil {
		out = t.after(out)
	}
	return out
}

func (m *Minter) segment(members map[string]any, raw []byte) string {
	if raw != nil {
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	b, err := json.Marshal(members)
	if err != nil {
		m.tb.Fatalf("token: %v", err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func newKey(tb testing.TB) ed25519.PrivateKey {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatalf("key: %v", err)
	}
	return key
}
