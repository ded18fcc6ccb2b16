package capability_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func envelopeOf(c capability.Claims) fence.Envelope {
	return fence.Envelope{BindingID: c.BindingID, Epoch: c.Epoch, Generation: c.Generation, RunID: c.RunID}
}

// present does what a receiver does: verify, then compare with the envelope.
func present(t *testing.T, v *capability.Verifier, token string, right capability.Claims) (capability.Claims, error) {
	t.Helper()
	c, err := v.Verify(t.Context(), token, right.Audience, right.Subject)
	if err != nil {
		return c, err
	}
	return c, c.Matches(envelopeOf(right))
}

func TestEveryAudienceIsAcceptedWithItsOwnClaims(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	for _, aud := range capability.Audiences() {
		t.Run(string(aud), func(t *testing.T) {
			now := time.Now().UTC().Truncate(time.Second)
			want := capabilitytest.Claims(aud, sandbox)
			want.ID, want.Issuer = "jti-1", m.Issuer()
			want.IssuedAt, want.NotBefore, want.Expiry = now, now, now.Add(time.Minute)
			got, err := present(t, m.Verifier(), m.Mint(want), want)
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("claims = %+v, want %+v", got, want)
			}
		})
	}
	t.Run("lifecycle", func(t *testing.T) {
		want := capabilitytest.Claims(capability.HarnessWorker, sandbox)
		want.RunID = ""
		got, err := present(t, m.Verifier(), m.Mint(want), want)
		if err != nil || !got.Lifecycle() {
			t.Fatalf("lifecycle = %v, error %v", got.Lifecycle(), err)
		}
	})
	t.Run("the encoding of the mint", func(t *testing.T) {
		want := capabilitytest.Claims(capability.ToolBroker, sandbox)
		want.ID, want.Issuer = "jti-1", m.Issuer()
		want.IssuedAt, want.NotBefore = time.Now(), time.Now()
		want.Expiry = time.Now().Add(time.Minute)
		payload, err := want.Payload()
		if err != nil {
			t.Fatal(err)
		}
		got, err := present(t, m.Verifier(), m.Mint(want, capabilitytest.WithPayload(payload)), want)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		if got.Expiry.After(want.Expiry) {
			t.Errorf("exp = %v is after what was asked for, %v", got.Expiry, want.Expiry)
		}
	})
}

func TestBrokenTokensAreRefusedForEveryAudience(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	v := m.Verifier()
	for _, aud := range capability.Audiences() {
		right := capabilitytest.Claims(aud, sandbox)
		for _, b := range m.Broken(right) {
			t.Run(string(aud)+"/"+b.Name, func(t *testing.T) {
				if _, err := present(t, v, b.Token, right); !fault.Is(err, b.Code) {
					t.Errorf("error = %v, want %s", err, b.Code)
				}
			})
		}
	}
}

func TestTokenThatIsNotWellFormed(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	right := capabilitytest.Claims(capability.ToolBroker, sandbox)
	jwk := map[string]any{"kty": "OKP", "crv": "Ed25519", "x": strings.Repeat("A", 43)}
	header := capabilitytest.WithHeader
	edit := capabilitytest.WithEdit
	raw := capabilitytest.WithRawHeader
	for name, opt := range map[string]capabilitytest.Option{
		"no typ":                    capabilitytest.WithoutHeader("typ"),
		"typ of a plain JWT":        capabilitytest.WithType("JWT"),
		"typ in capitals":           capabilitytest.WithType("CAP+JWT"),
		"typ with media prefix":     capabilitytest.WithType("application/cap+jwt"),
		"no alg":                    capabilitytest.WithoutHeader("alg"),
		"alg in lower case":         header("alg", "eddsa"),
		"alg None":                  header("alg", "None"),
		"alg ES256":                 header("alg", "ES256"),
		"alg is a list":             header("alg", []string{"EdDSA"}),
		"no kid":                    capabilitytest.WithoutHeader("kid"),
		"empty kid":                 capabilitytest.WithKeyID(""),
		"kid is a path":             capabilitytest.WithKeyID("../../dev/null"),
		"kid is a number":           header("kid", 1),
		"kid is null":               header("kid", nil),
		"crit":                      header("crit", []string{"exp"}),
		"crit with b64":             func(tk *capabilitytest.Token) { header("crit", []string{"b64"})(tk); header("b64", false)(tk) },
		"b64 alone":                 header("b64", true),
		"embedded jwk":              header("jwk", jwk),
		"jku":                       header("jku", "https://elsewhere.example/jwks.json"),
		"x5c":                       header("x5c", []string{"AAAA"}),
		"x5u":                       header("x5u", "https://elsewhere.example/cert"),
		"nested token":              header("cty", "JWT"),
		"compressed":                header("zip", "DEF"),
		"header is not an object":   raw(`["EdDSA","%s"]`),
		"header is not JSON":        raw(`{"typ":"cap+jwt","alg":"EdDSA","kid":"%s"`),
		"header with a key twice":   raw(`{"typ":"cap+jwt","alg":"none","alg":"EdDSA","kid":"%s"}`),
		"header in another case":    raw(`{"Typ":"cap+jwt","alg":"EdDSA","kid":"%s"}`),
		"header with trailing data": raw(`{"typ":"cap+jwt","alg":"EdDSA","kid":"%s"} {}`),
		"header with a kid twice":   raw(`{"typ":"cap+jwt","alg":"EdDSA","kid":"other","kid":"%s"}`),
		"huge header":               capabilitytest.WithKeyID(strings.Repeat("k", 1<<10)),
		"huge token":                edit(func(s string) string { return s + strings.Repeat("A", capability.MaxTokenBytes) }),
		"trailing segment":          edit(func(s string) string { return s + ".AAAA" }),
		"trailing dot":              edit(func(s string) string { return s + "." }),
		"trailing blank":            edit(func(s string) string { return s + " " }),
		"trailing line break":       edit(func(s string) string { return s + "\n" }),
		"leading blank":             edit(func(s string) string { return " " + s }),
		"line break in a segment":   edit(func(s string) string { return s[:4] + "\r\n" + s[4:] }),
		"padding":                   edit(func(s string) string { return s + "==" }),
		"stray bits at the end":     edit(strayBits),
		"standard alphabet":         edit(func(s string) string { return s[:len(s)-2] + "+/" }),
		"no signature":              edit(func(s string) string { return s[:strings.LastIndex(s, ".")+1] }),
		"two segments":              edit(func(s string) string { return s[:strings.LastIndex(s, ".")] }),
		"short signature":           edit(func(s string) string { return s[:len(s)-4] }),
		"no payload":                edit(func(s string) string { p := strings.Split(s, "."); return p[0] + ".." + p[2] }),
		"payload of another token": edit(func(s string) string {
			p := strings.Split(s, ".")
			return p[0] + "." + strings.Split(m.Mint(right), ".")[1] + "." + p[2]
		}),
		"JSON serialization": edit(func(s string) string {
			p := strings.Split(s, ".")
			return `{"protected":"` + p[0] + `","payload":"` + p[1] + `","signature":"` + p[2] + `"}`
		}),
		"dots only":                  edit(func(string) string { return ".." }),
		"scheme left on":             edit(func(s string) string { return "Bearer " + s }),
		"two tokens with a comma":    edit(func(s string) string { return s + "," + s }),
		"a NUL byte":                 edit(func(s string) string { return s + "\x00" }),
		"an encoded JWE of 5 parts":  edit(func(s string) string { return s + ".AAAA.AAAA" }),
		"a letter that is not ASCII": edit(func(s string) string { return "é" + s }),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := present(t, m.Verifier(), m.Mint(right, opt), right); !fault.Is(err, fault.CapabilityInvalid) {
				t.Errorf("error = %v, want capability_invalid", err)
			}
		})
	}
}

// A token that is right in every other way may still not be larger than 8 KiB.
func TestSizeOfAToken(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	right := capabilitytest.Claims(capability.ToolBroker, sandbox)
	for i := 0; ; i++ {
		token := m.Mint(right)
		_, err := present(t, m.Verifier(), token, right)
		if len(token) <= capability.MaxTokenBytes && err != nil {
			t.Fatalf("%d bytes: %v", len(token), err)
		}
		if len(token) > capability.MaxTokenBytes {
			if !fault.Is(err, fault.CapabilityInvalid) {
				t.Errorf("%d bytes: error = %v, want capability_invalid", len(token), err)
			}
			return
		}
		right.Tools = append(right.Tools, "fs."+strings.Repeat("x", 120)+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
}

// strayBits changes the last letter of a 64-byte signature so that a decoder
// that is not strict reads the same bytes.
func strayBits(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	i := strings.IndexByte(alphabet, s[len(s)-1])
	return s[:len(s)-1] + string(alphabet[i^1])
}

func TestClaimsThatAreNotTheAudiences(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	claim, without := capabilitytest.WithClaim, capabilitytest.WithoutClaim
	type row struct {
		aud capability.Audience
		opt capabilitytest.Option
	}
	rows := map[string]row{
		"two audiences":              {capability.ToolBroker, claim("aud", []string{"tool-broker", "memory"})},
		"a list of one audience":     {capability.ToolBroker, claim("aud", []string{"tool-broker"})},
		"aud in capitals":            {capability.ToolBroker, claim("Aud", "tool-broker")},
		"unknown claim":              {capability.ToolBroker, claim("admin", true)},
		"act":                        {capability.ToolBroker, claim("act", map[string]string{"sub": "x"})},
		"sub is a service":           {capability.ToolBroker, claim("sub", "spiffe://cofferdam.test/svc/toolbroker")},
		"sub is a trust domain":      {capability.ToolBroker, claim("sub", "spiffe://cofferdam.test")},
		"sub has two segments":       {capability.ToolBroker, claim("sub", "spiffe://cofferdam.test/sandbox/instance-1/x")},
		"sub is no SPIFFE ID":        {capability.ToolBroker, claim("sub", "instance-1")},
		"exp is a string":            {capability.ToolBroker, claim("exp", "4102444800")},
		"exp is not whole":           {capability.ToolBroker, claim("exp", 4102444800.5)},
		"exp is enormous":            {capability.ToolBroker, claim("exp", 1e300)},
		"exp is null":                {capability.ToolBroker, claim("exp", nil)},
		"exp before nbf":             {capability.ToolBroker, claim("exp", 1)},
		"iat is negative":            {capability.ToolBroker, claim("iat", -1)},
		"generation 0":               {capability.ToolBroker, claim("lease_generation", 0)},
		"generation is too big":      {capability.ToolBroker, claim("lease_generation", 1<<32)},
		"generation is negative":     {capability.ToolBroker, claim("lease_generation", -1)},
		"epoch is a string":          {capability.ToolBroker, claim("epoch", "0")},
		"binding id of another kind": {capability.ToolBroker, claim("binding_id", "run_1")},
		"run id with a blank":        {capability.ToolBroker, claim("run_id", "run 1")},
		"a wildcard for tools":       {capability.ToolBroker, claim("tools", []string{"fs.*"})},
		"a tool twice":               {capability.ToolBroker, claim("tools", []string{"fs.a", "fs.a"})},
		"tools is a string":          {capability.ToolBroker, claim("tools", "fs.a")},
		"tools has null":             {capability.ToolBroker, claim("tools", []any{nil})},
		"an unknown memory scope":    {capability.Memory, claim("memory_scopes", []string{"everybody"})},
		"no memory scope":            {capability.Memory, without("memory_scopes")},
		"no handle":                  {capability.FileBroker, without("handles")},
		"a handle that is a path":    {capability.FileBroker, claim("handles", []string{"../x"})},
		"no alias":                   {capability.ModelProxy, without("model_alias")},
		"two aliases":                {capability.ModelProxy, claim("model_alias", []string{"a", "b"})},
		"a second JSON value":        {capability.ThreadState, capabilitytest.WithPayload([]byte(`{} {}`))},
		"not an object":              {capability.ThreadState, capabilitytest.WithPayload([]byte(`"sub"`))},
		"not JSON":                   {capability.ThreadState, capabilitytest.WithPayload([]byte(`sub=me`))},
		"not UTF-8":                  {capability.ThreadState, capabilitytest.WithPayload([]byte("{\"iss\":\"\xff\"}"))},
	}
	foreign := map[string]any{"tools": []string{"fs.a"}, "memory_scopes": []string{"user"}, "handles": []string{"h"}, "model_alias": "demo"}
	own := map[capability.Audience]string{
		capability.ToolBroker: "tools", capability.Memory: "memory_scopes", capability.FileBroker: "handles", capability.ModelProxy: "model_alias",
	}
	for _, aud := range capability.Audiences() {
		for name, value := range foreign {
			if own[aud] != name {
				rows[string(aud)+" with "+name] = row{aud, claim(name, value)}
			}
		}
		for _, name := range []string{"iss", "aud", "sub", "jti", "iat", "nbf", "exp", "binding_id", "epoch", "lease_generation"} {
			rows[string(aud)+" without "+name] = row{aud, without(name)}
		}
		if aud != capability.HarnessWorker {
			rows[string(aud)+" without run_id"] = row{aud, without("run_id")}
		}
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			right := capabilitytest.Claims(r.aud, sandbox)
			if _, err := present(t, m.Verifier(), m.Mint(right, r.opt), right); !fault.Is(err, fault.CapabilityInvalid) {
				t.Errorf("error = %v, want capability_invalid", err)
			}
		})
	}
}

func TestClaimGivenTwice(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	c := capabilitytest.Claims(capability.ToolBroker, sandbox)
	c.ID, c.Issuer = "jti-1", m.Issuer()
	c.IssuedAt, c.NotBefore, c.Expiry = time.Now(), time.Now(), time.Now().Add(time.Minute)
	payload, err := c.Payload()
	if err != nil {
		t.Fatal(err)
	}
	for _, second := range []string{`"tools":["fs.write_file"]`, `"Tools":["fs.write_file"]`, `"aud":"memory"`, `"\u0061ud":"memory"`} {
		twice := append([]byte("{"+second+","), payload[1:]...)
		if _, err := present(t, m.Verifier(), m.Mint(c, capabilitytest.WithPayload(twice)), c); !fault.Is(err, fault.CapabilityInvalid) {
			t.Errorf("%s: error = %v, want capability_invalid", second, err)
		}
	}
}

func TestTimes(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	issued := time.Unix(1_900_000_000, 0)
	for name, tc := range map[string]struct {
		iat, nbf, exp time.Time
		now           time.Time
		want          fault.Code
	}{
		"at once":                       {now: issued},
		"the last moment":               {now: issued.Add(time.Minute - 1)},
		"exp has no skew":               {now: issued.Add(time.Minute), want: fault.CapabilityExpired},
		"long expired":                  {now: issued.Add(time.Hour), want: fault.CapabilityExpired},
		"5 s before iat and nbf":        {now: issued.Add(-capability.ClockSkew)},
		"more than 5 s before iat":      {now: issued.Add(-capability.ClockSkew - 1), nbf: issued.Add(-time.Minute), want: fault.CapabilityInvalid},
		"more than 5 s before nbf":      {now: issued.Add(-capability.ClockSkew - 1), iat: issued.Add(-time.Minute), want: fault.CapabilityInvalid},
		"expired and from the future":   {now: issued, nbf: issued.Add(30 * time.Second), exp: issued.Add(31 * time.Second), want: fault.CapabilityInvalid},
		"a moment that is not whole":    {now: issued.Add(time.Minute - 500*time.Millisecond)},
		"lifetime of nothing":           {now: issued, exp: issued, want: fault.CapabilityInvalid},
		"ends before it begins":         {now: issued, exp: issued.Add(-time.Second), want: fault.CapabilityInvalid},
		"the clock stands at the epoch": {now: time.Unix(0, 0), want: fault.CapabilityInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: m.Keys(), Now: func() time.Time { return tc.now }})
			if err != nil {
				t.Fatal(err)
			}
			c := capabilitytest.Claims(capability.ThreadState, sandbox)
			c.IssuedAt, c.NotBefore, c.Expiry = issued, issued, issued.Add(time.Minute)
			for at, set := range map[*time.Time]time.Time{&c.IssuedAt: tc.iat, &c.NotBefore: tc.nbf, &c.Expiry: tc.exp} {
				if !set.IsZero() {
					*at = set
				}
			}
			if _, err := v.Verify(t.Context(), m.Mint(c), c.Audience, sandbox); fault.CodeOf(err) != tc.want {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNobodyStandsBehindTheToken(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	c := capabilitytest.Claims(capability.ToolBroker, sandbox)
	for name, peer := range map[string]spiffeid.ID{
		"no peer":              {},
		"another instance":     spiffeid.RequireFromString("spiffe://cofferdam.test/sandbox/instance-2"),
		"the control plane":    spiffeid.RequireFromString("spiffe://cofferdam.test/svc/controlplane"),
		"another trust domain": spiffeid.RequireFromString("spiffe://other.test/sandbox/instance-1"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := m.Verifier().Verify(t.Context(), m.Mint(c), c.Audience, peer); !fault.Is(err, fault.CapabilityInvalid) {
				t.Errorf("error = %v, want capability_invalid", err)
			}
		})
	}
}

type keysFunc func(context.Context, string) (ed25519.PublicKey, error)

func (f keysFunc) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) { return f(ctx, kid) }

func TestKeysThatCannotBeHad(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	token := m.Mint(capabilitytest.Claims(capability.Memory, sandbox))
	verify := func(ctx context.Context, keys keysFunc) error {
		v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.Verify(ctx, token, capability.Memory, sandbox)
		return err
	}
	down := func(context.Context, string) (ed25519.PublicKey, error) { return nil, errors.New("connection refused") }
	if err := verify(t.Context(), down); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("service down: error = %v, want dependency_unavailable", err)
	}
	waits := func(ctx context.Context, _ string) (ed25519.PublicKey, error) { <-ctx.Done(); return nil, ctx.Err() }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := verify(gone, waits); !fault.Is(err, fault.Cancelled) {
		t.Errorf("caller gone: error = %v, want cancelled", err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := verify(late, waits); !fault.Is(err, fault.DeadlineExceeded) {
		t.Errorf("caller late: error = %v, want deadline_exceeded", err)
	}
}

// A token that cannot be right must not make this process ask for keys.
func TestMalformedTokensDoNotLookUpKeys(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	asked := 0
	v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: keysFunc(func(context.Context, string) (ed25519.PublicKey, error) {
		asked++
		return nil, capability.ErrUnknownKey
	})})
	if err != nil {
		t.Fatal(err)
	}
	right := capabilitytest.Claims(capability.Memory, sandbox)
	for _, opt := range []capabilitytest.Option{
		capabilitytest.WithAlgNone(), capabilitytest.WithHS256(), capabilitytest.WithRS256(), capabilitytest.WithType("JWT"),
		capabilitytest.WithoutHeader("kid"), capabilitytest.WithHeader("crit", []string{"exp"}), capabilitytest.WithKeyID("a b"),
	} {
		if _, err := present(t, v, m.Mint(right, opt), right); !fault.Is(err, fault.CapabilityInvalid) {
			t.Errorf("error = %v, want capability_invalid", err)
		}
	}
	if asked != 0 {
		t.Errorf("keys were asked for %d times, want 0", asked)
	}
}

func TestVerifierNeedsIssuerAndKeys(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	for _, cfg := range []capability.Config{{}, {Issuer: "x"}, {Keys: m.Keys()}} {
		if _, err := capability.NewVerifier(cfg); err == nil {
			t.Errorf("NewVerifier(%+v) has no error", cfg)
		}
	}
}

// What a refusal says, to a caller or to a log, must not hold the token.
func TestRefusalsDoNotQuoteTheToken(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	right := capabilitytest.Claims(capability.ToolBroker, sandbox)
	right.Tools = []string{"canary.tool_canary"}
	for _, b := range append(m.Broken(right),
		capabilitytest.Broken{Token: m.Mint(right, capabilitytest.WithClaim("tools", []string{"canary"}))},
		capabilitytest.Broken{Token: m.Mint(right, capabilitytest.WithClaim("sub", "canary"))}) {
		_, err := present(t, m.Verifier(), b.Token, right)
		if err == nil {
			t.Fatalf("%s: accepted", b.Name)
		}
		for _, part := range append(strings.Split(b.Token, "."), "canary") {
			if len(part) > 5 && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error quotes %q", b.Name, part)
			}
		}
	}
}
