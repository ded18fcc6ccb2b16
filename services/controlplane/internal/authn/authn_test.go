package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/authn"
)

const (
	issuer   = "https://issuer.test"
	audience = "cofferdam"
)

func now() time.Time { return time.Date(2026, 8, 17, 12, 0, 0, 0, time.UTC) }

// ring has the issuer's keys.
type ring struct {
	ec, other *ecdsa.PrivateKey
	rsa       *rsa.PrivateKey
	err       error
}

func newRing(t *testing.T) *ring {
	t.Helper()
	r := &ring{}
	for _, k := range []**ecdsa.PrivateKey{&r.ec, &r.other} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		*k = key
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	r.rsa = key
	return r
}

func (r *ring) set() jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: r.ec.Public(), KeyID: "ec", Algorithm: "ES256"},
		{Key: r.rsa.Public(), KeyID: "rsa", Algorithm: "RS256"},
		{Key: r.other.Public(), KeyID: "twice"},
		{Key: r.ec.Public(), KeyID: "twice"},
	}}
}

// Keys implements authn.Keys.
func (r *ring) Keys(_ context.Context, kid string) ([]jose.JSONWebKey, error) {
	set := r.set()
	return set.Key(kid), r.err
}

type claims map[string]any

// with is what a good token says, changed.
func with(changes claims) claims {
	c := claims{
		"iss": issuer, "aud": audience, "sub": "user-1", "org": "org-1",
		"iat": now().Unix(), "nbf": now().Unix(), "exp": now().Add(time.Hour).Unix(),
	}
	for k, v := range changes {
		c[k] = v
		if v == nil {
			delete(c, k)
		}
	}
	return c
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, c claims) string {
	t.Helper()
	opts := (&jose.SignerOptions{}).WithType("JWT")
	if kid != "" {
		opts = opts.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func newVerifier(t *testing.T, keys authn.Keys) *authn.Verifier {
	t.Helper()
	v, err := authn.New(authn.Config{
		Issuer: issuer, Audience: audience, Algorithms: []jose.SignatureAlgorithm{jose.ES256, jose.RS256}, Keys: keys, Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func TestTokensThatAreTaken(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	v := newVerifier(t, r)
	at := func(d time.Duration) int64 { return now().Add(d).Unix() }
	for name, c := range map[string]struct {
		token string
		want  authn.Caller
	}{
		"the usual":               {sign(t, jose.ES256, r.ec, "ec", with(nil)), authn.Caller{Subject: "user-1", Organization: "org-1"}},
		"RSA":                     {sign(t, jose.RS256, r.rsa, "rsa", with(nil)), authn.Caller{Subject: "user-1", Organization: "org-1"}},
		"one of two with its kid": {sign(t, jose.ES256, r.ec, "twice", with(nil)), authn.Caller{Subject: "user-1", Organization: "org-1"}},
		"no organization":         {sign(t, jose.ES256, r.ec, "ec", with(claims{"org": nil})), authn.Caller{Subject: "user-1", Organization: "default"}},
		"a list with the audience": {
			sign(t, jose.ES256, r.ec, "ec", with(claims{"aud": []string{audience}})), authn.Caller{Subject: "user-1", Organization: "org-1"},
		},
		"no times but the end": {
			sign(t, jose.ES256, r.ec, "ec", with(claims{"iat": nil, "nbf": nil})), authn.Caller{Subject: "user-1", Organization: "org-1"},
		},
		"clocks that differ a little": {
			sign(t, jose.ES256, r.ec, "ec", with(claims{"iat": at(5 * time.Second), "nbf": at(5 * time.Second)})),
			authn.Caller{Subject: "user-1", Organization: "org-1"},
		},
		"a second before its end": {
			sign(t, jose.ES256, r.ec, "ec", with(claims{"exp": at(time.Second)})), authn.Caller{Subject: "user-1", Organization: "org-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := v.Token(t.Context(), c.token); err != nil || got != c.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	v := newVerifier(t, r)
	good := sign(t, jose.ES256, r.ec, "ec", with(nil))
	parts := strings.Split(good, ".")
	public, err := x509.MarshalPKIXPublicKey(r.rsa.Public())
	if err != nil {
		t.Fatal(err)
	}
	signed := func(changes claims) string { return sign(t, jose.ES256, r.ec, "ec", with(changes)) }
	at := func(d time.Duration) int64 { return now().Add(d).Unix() }
	for name, token := range map[string]string{
		"nothing":                           "",
		"no JWT":                            "abc",
		"too long":                          strings.Repeat("a", 16<<10+1),
		"a long claim":                      signed(claims{"x": strings.Repeat("a", 16<<10)}),
		"alg none":                          b64(`{"alg":"none","kid":"ec"}`) + "." + parts[1] + ".",
		"alg none with a signature":         b64(`{"alg":"none","kid":"ec"}`) + "." + parts[1] + "." + parts[2],
		"alg None":                          b64(`{"alg":"None","kid":"ec"}`) + "." + parts[1] + ".",
		"HMAC with the public key":          sign(t, jose.HS256, public, "rsa", with(nil)),
		"an algorithm that is not accepted": sign(t, jose.PS256, r.rsa, "rsa", with(nil)),
		"the kid of another key":            sign(t, jose.ES256, r.ec, "rsa", with(nil)),
		"another key under the kid":         sign(t, jose.ES256, r.other, "ec", with(nil)),
		"an unknown kid":                    sign(t, jose.ES256, r.ec, "nobody", with(nil)),
		"no kid":                            sign(t, jose.ES256, r.ec, "", with(nil)),
		"another payload":                   parts[0] + "." + b64(`{"sub":"admin"}`) + "." + parts[2],
		"another header":                    b64(`{"alg":"ES256","kid":"ec","x":1}`) + "." + parts[1] + "." + parts[2],
		"no signature":                      parts[0] + "." + parts[1] + ".",
		"a header that nobody understands":  b64(`{"alg":"ES256","kid":"ec","crit":["x"],"x":1}`) + "." + parts[1] + "." + parts[2],
		"a token that brings its key":       b64(`{"alg":"ES256","jwk":{"kty":"oct","k":"AA"}}`) + "." + parts[1] + "." + parts[2],
		"encrypted":                         "a.b.c.d.e",
		"another issuer":                    signed(claims{"iss": "https://other.test"}),
		"no issuer":                         signed(claims{"iss": nil}),
		"an issuer with a slash more":       signed(claims{"iss": issuer + "/"}),
		"another audience":                  signed(claims{"aud": "other"}),
		"no audience":                       signed(claims{"aud": nil}),
		"an audience beside ours":           signed(claims{"aud": []string{audience, "other"}}),
		"expired":                           signed(claims{"exp": at(-time.Minute)}),
		"expired this second":               signed(claims{"exp": at(0)}),
		"no end":                            signed(claims{"exp": nil}),
		"not valid yet":                     signed(claims{"nbf": at(6 * time.Second)}),
		"issued in the future":              signed(claims{"iat": at(6 * time.Second)}),
		"no subject":                        signed(claims{"sub": nil}),
		"an empty subject":                  signed(claims{"sub": ""}),
		"a long subject":                    signed(claims{"sub": strings.Repeat("s", 257)}),
		"a subject that is a number":        signed(claims{"sub": 7}),
		"a long organization":               signed(claims{"org": strings.Repeat("o", 257)}),
		"an organization that is a list":    signed(claims{"org": []string{"a"}}),
		"an end that is text":               signed(claims{"exp": "tomorrow"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := v.Token(t.Context(), token)
			if !fault.Is(err, fault.Unauthenticated) || got != (authn.Caller{}) {
				t.Fatalf("%+v, %v", got, err)
			}
			f := fault.From(err, "test")
			if f.Detail() == "" || (len(token) > 8 && strings.Contains(f.Error(), token)) {
				t.Errorf("the refusal says %q", f.Error())
			}
		})
	}
}

// An issuer that does not answer is no proof of anything, for nobody.
func TestAnIssuerThatIsAwayLetsNobodyIn(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.err = errors.New("away")
	if got, err := newVerifier(t, r).Token(t.Context(), sign(t, jose.ES256, r.ec, "ec", with(nil))); !fault.Is(err, fault.DependencyUnavailable) || got != (authn.Caller{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAuthorizationHeaders(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	v := newVerifier(t, r)
	good := sign(t, jose.ES256, r.ec, "ec", with(nil))
	for name, c := range map[string]struct {
		values []string
		taken  bool
	}{
		"the usual":         {[]string{"Bearer " + good}, true},
		"another case":      {[]string{"bEARER " + good}, true},
		"more space":        {[]string{"Bearer   " + good + " "}, true},
		"none":              {nil, false},
		"empty":             {[]string{""}, false},
		"no scheme":         {[]string{good}, false},
		"another scheme":    {[]string{"Basic " + good}, false},
		"the scheme alone":  {[]string{"Bearer "}, false},
		"two":               {[]string{"Bearer " + good, "Bearer " + good}, false},
		"two, one is empty": {[]string{"", "Bearer " + good}, false},
		"two in one":        {[]string{"Bearer " + good + ", Bearer " + good}, false},
		"a tab":             {[]string{"Bearer\t" + good}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header["Authorization"] = c.values
			got, err := v.Request(req)
			if c.taken != (err == nil) || c.taken != (got.Subject == "user-1") || (!c.taken && !fault.Is(err, fault.Unauthenticated)) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// A verifier that could be fooled is not made.
func TestVerifiersThatAreRefused(t *testing.T) {
	t.Parallel()
	good := authn.Config{Issuer: issuer, Audience: audience, Algorithms: []jose.SignatureAlgorithm{jose.ES256}, Keys: &ring{}}
	if _, err := authn.New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*authn.Config){
		"no issuer":      func(c *authn.Config) { c.Issuer = "" },
		"no audience":    func(c *authn.Config) { c.Audience = "" },
		"no keys":        func(c *authn.Config) { c.Keys = nil },
		"no algorithms":  func(c *authn.Config) { c.Algorithms = nil },
		"HMAC":           func(c *authn.Config) { c.Algorithms = append(c.Algorithms, jose.HS256) },
		"none":           func(c *authn.Config) { c.Algorithms = append(c.Algorithms, "none") },
		"a typing error": func(c *authn.Config) { c.Algorithms = append(c.Algorithms, "es256") },
	} {
		c := good
		change(&c)
		if v, err := authn.New(c); err == nil || v != nil {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

func TestKeySetsThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	set := func(keys ...jose.JSONWebKey) []byte {
		raw, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if got, err := authn.ParseJWKS(set(r.set().Keys...)); err != nil || len(got.Keys) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	private := jose.JSONWebKey{Key: r.ec, KeyID: "private"}
	for name, raw := range map[string][]byte{
		"nothing":                  nil,
		"no JSON":                  []byte(`{"keys":`),
		"a private key":            set(private),
		"a private key behind one": set(r.set().Keys[0], private),
		"a private RSA key":        set(jose.JSONWebKey{Key: r.rsa, KeyID: "private"}),
		"a symmetric key":          set(jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "secret"}),
	} {
		got, err := authn.ParseJWKS(raw)
		if err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
