package authz_test

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
)

func TestIDsAreWrittenAs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 201)
	for name, c := range map[string]struct{ got, want string }{
		"plain subject":        {authz.UserID("user-1"), "user:user-1"},
		"mail address":         {authz.UserID("anne@example.org"), "user:anne%40example.org"},
		"wildcard":             {authz.UserID("*"), "user:%2A"},
		"userset":              {authz.UserID("organization:acme#member"), "user:organization%3Aacme%23member"},
		"space and slash":      {authz.UserID("a b/c"), "user:a%20b%2Fc"},
		"percent":              {authz.UserID("%2A"), "user:%252A"},
		"other script":         {authz.UserID("é"), "user:%C3%A9"},
		"not UTF-8":            {authz.UserID("\xff"), "user:%FF"},
		"empty":                {authz.UserID(""), "user:%n"},
		"longest":              {authz.UserID(long[:200]), "user:" + long[:200]},
		"too long":             {authz.UserID(long), "user:%h" + digest(long)},
		"tool":                 {authz.ToolID("fs.read_text_file"), "tool:fs.read_text_file"},
		"tool with a slash":    {authz.ToolID("gh.repos/list"), "tool:gh.repos%2Flist"},
		"agent":                {authz.AgentID("demo"), "agent:demo"},
		"organization":         {authz.OrganizationID("acme"), "organization:acme"},
		"organization members": {authz.OrganizationMembers("a#b"), "organization:a%23b#member"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// FuzzEncodingIsInjectiveAndSafe: no subject can be written as another one, as
// everybody, as a userset, or as something that OpenFGA does not take.
func FuzzEncodingIsInjectiveAndSafe(f *testing.F) {
	for _, s := range []string{"", "*", "%", "%n", "%2A", "a:b", "a#b", "a\x00b", strings.Repeat("é", 100), strings.Repeat("é", 101)} {
		f.Add(s, "*")
	}
	safe := regexp.MustCompile(`^user:[A-Za-z0-9._%-]{1,200}$`)
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := authz.UserID(a), authz.UserID(b)
		if !safe.MatchString(x) || x == authz.EveryUser {
			t.Errorf("%q is written %q", a, x)
		}
		if (a == b) != (x == y) {
			t.Errorf("%q and %q are written %q and %q", a, b, x, y)
		}
	})
}
