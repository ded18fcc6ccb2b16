package workloadapi

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestJWTSVID(t *testing.T) {
	s := newServer(t, nil)
	issuer, verifier := dial(t, register(t, s, sandbox)), dial(t, register(t, s, broker))
	token, err := issuer.FetchJWTSVID(bounded(t), jwtsvid.Params{Audience: "a", ExtraAudiences: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	if token.ID != sandbox || !slices.Equal(token.Audience, []string{"a", "b"}) {
		t.Errorf("issued for %q to %v", token.ID, token.Audience)
	}
	if left := time.Until(token.Expiry); left > 5*time.Minute+time.Second || left < 4*time.Minute {
		t.Errorf("the token lives for %s, want five minutes", left)
	}
	for _, audience := range []string{"a", "b"} {
		if got, err := verifier.ValidateJWTSVID(bounded(t), token.Marshal(), audience); err != nil || got.ID != sandbox {
			t.Errorf("validated for %q: %v, %v", audience, got, err)
		}
	}
	bundles, err := verifier.FetchJWTBundles(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := jwtsvid.ParseAndValidate(token.Marshal(), bundles, []string{"a"}); err != nil || got.ID != sandbox {
		t.Errorf("validated with the bundle: %v, %v", got, err)
	}
	head, _, _ := strings.Cut(token.Marshal(), ".")
	for name, tc := range map[string]struct{ token, audience string }{
		"another audience": {token.Marshal(), "c"},
		"no audience":      {token.Marshal(), ""},
		"no signature":     {token.Marshal()[:strings.LastIndex(token.Marshal(), ".")+1], "a"},
		"another header":   {strings.Replace(token.Marshal(), head, "eyJhbGciOiJub25lIn0", 1), "a"},
		"no token":         {"", "a"},
	} {
		if _, err := verifier.ValidateJWTSVID(bounded(t), tc.token, tc.audience); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

func TestJWTSVIDIsRefused(t *testing.T) {
	s := newServer(t, nil)
	register(t, s, broker)
	c := dial(t, register(t, s, sandbox))
	many := strings.Split(strings.Repeat("x ", maxAudiences), " ")
	for name, tc := range map[string]struct {
		params jwtsvid.Params
		want   codes.Code
	}{
		"for somebody else":  {jwtsvid.Params{Audience: "a", Subject: broker}, codes.PermissionDenied},
		"no audience":        {jwtsvid.Params{}, codes.InvalidArgument},
		"too many audiences": {jwtsvid.Params{Audience: "a", ExtraAudiences: many[:maxAudiences]}, codes.InvalidArgument},
		"a long audience":    {jwtsvid.Params{Audience: strings.Repeat("a", maxAudience+1)}, codes.InvalidArgument},
	} {
		if token, err := c.FetchJWTSVID(bounded(t), tc.params); status.Code(err) != tc.want {
			t.Errorf("%s: %v, %v, want %s", name, token, err, tc.want)
		}
	}
	if _, err := c.FetchJWTSVID(bounded(t), jwtsvid.Params{Audience: "a", Subject: sandbox}); err != nil {
		t.Errorf("for oneself: %v", err)
	}
}

// A token stays valid when its authority stops signing, and no longer than it is trusted.
func TestJWTSVIDOutlivesItsSigner(t *testing.T) {
	now := newClock()
	s := newServer(t, func(c *Config) { c.Now, c.JWTTTL = now.Now, 6*time.Hour })
	c := dial(t, register(t, s, sandbox))
	valid := func(token string) bool {
		_, err := c.ValidateJWTSVID(bounded(t), token, "a")
		return err == nil
	}
	// Not by the client, which would refuse what is from its future.
	fetch := func() string {
		v, err := s.view(s.pathOf(sandbox))
		if err != nil {
			t.Fatal(err)
		}
		token, err := (&api{server: s, id: sandbox}).signJWT(v, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	old := fetch()
	signer := s.chain.signer
	rotate(t, s, now.add(12*time.Hour))
	rotate(t, s, now.add(6*time.Hour))
	if s.chain.signer == signer {
		t.Fatal("the signer was not replaced")
	}
	if !valid(old) {
		t.Error("the token of the last signer is refused")
	}
	rotate(t, s, now.add(6*time.Hour+time.Second))
	if valid(old) {
		t.Error("the token of a forgotten authority is accepted")
	}
	head, _, _ := strings.Cut(fetch(), ".")
	if oldHead, _, _ := strings.Cut(old, "."); head == oldHead {
		t.Error("both tokens name the same key")
	}
}
