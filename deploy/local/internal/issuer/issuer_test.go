package issuer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam.dev/deploy/local/internal/datadir"
)

func folder(t *testing.T) datadir.Dir {
	t.Helper()
	d, err := datadir.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t *testing.T, d datadir.Dir) *Issuer {
	t.Helper()
	i, err := Open(d)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// public reads the published set, as the control plane does.
func public(t *testing.T, d datadir.Dir) jose.JSONWebKeySet {
	t.Helper()
	raw, err := os.ReadFile(d.IssuerJWKS())
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestATokenVerifiesWithThePublishedKey(t *testing.T) {
	d := folder(t)
	now := time.Now().Truncate(time.Second)
	i := open(t, d)
	i.now = func() time.Time { return now }
	token, err := i.Token(Request{Subject: "user-1"})
	if err != nil {
		t.Fatal(err)
	}
	set := public(t, d)
	if len(set.Keys) != 1 || !set.Keys[0].IsPublic() {
		t.Fatal("the published set is not one public key")
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	if h := parsed.Headers[0]; h.KeyID != set.Keys[0].KeyID || h.ExtraHeaders["typ"] != "JWT" {
		t.Errorf("header %+v", h)
	}
	var claims struct {
		jwt.Claims
		Organization string `json:"org"`
	}
	if err := parsed.Claims(set.Keys[0].Key, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Issuer != Name || claims.Subject != "user-1" || !claims.Audience.Contains(Audience) || len(claims.Audience) != 1 ||
		claims.ID == "" || claims.Organization != Organization {
		t.Errorf("claims %+v", claims)
	}
	if !claims.IssuedAt.Time().Equal(now) || !claims.NotBefore.Time().Equal(now) || !claims.Expiry.Time().Equal(now.Add(DefaultTTL)) {
		t.Errorf("times %v %v %v", claims.IssuedAt.Time(), claims.NotBefore.Time(), claims.Expiry.Time())
	}
}

func TestTheKeyStaysTheSame(t *testing.T) {
	d := folder(t)
	open(t, d)
	first := public(t, d).Keys[0].KeyID
	open(t, d)
	loaded, err := Load(d)
	if err != nil {
		t.Fatal(err)
	}
	if second := public(t, d).Keys[0].KeyID; second != first || loaded.key.KeyID != first {
		t.Errorf("key %q became %q, loaded %q", first, second, loaded.key.KeyID)
	}
}

func TestATokenHasBounds(t *testing.T) {
	i := open(t, folder(t))
	for name, r := range map[string]Request{
		"no subject":        {},
		"long subject":      {Subject: strings.Repeat("s", 257)},
		"long organization": {Subject: "s", Organization: strings.Repeat("o", 257)},
		"too long":          {Subject: "s", TTL: MaxTTL + time.Second},
		"too short":         {Subject: "s", TTL: time.Millisecond},
		"negative":          {Subject: "s", TTL: -time.Hour},
	} {
		if token, err := i.Token(r); err == nil || token != "" {
			t.Errorf("%s was signed", name)
		}
	}
}

func TestABrokenKeyIsNotTold(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON":     "hush-hush",
		"another key": `{"kty":"oct","k":"aHVzaC1odXNo","kid":"x"}`,
		"no id":       `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}`,
	} {
		d := folder(t)
		if err := datadir.Write(d.IssuerKey(), []byte(content)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(d)
		if err == nil {
			t.Errorf("%s was taken", name)
		} else if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "nWGx") {
			t.Errorf("%s: the error tells the key", name)
		}
	}
}

func TestLoadWantsAKey(t *testing.T) {
	if _, err := Load(folder(t)); err == nil {
		t.Error("loaded from an empty folder")
	}
}
