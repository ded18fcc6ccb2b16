package redact_test

import (
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/telemetry/redact"
)

// canary is in every secret of the tests, and must be in nothing that comes out.
const canary = "c4n4ryC4N4RYc4n4ry"

func TestLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"nothing":                {"npm warn: 3 packages are old; tokens used: 12", "npm warn: 3 packages are old; tokens used: 12"},
		"a header":               {"x-goog-api-key: " + canary, "x-goog-api-key: [redacted]"},
		"a header in JSON":       {`{"x-api-key":"` + canary + `","a":1}`, `{"x-api-key":"[redacted]","a":1}`},
		"an authorization":       {"Authorization: Basic " + canary, "Authorization: Basic [redacted]"},
		"a bearer":               {"got Bearer " + canary, "got [redacted]"},
		"an environment":         {"OPENAI_API_KEY=" + canary + " PATH=/usr/bin", "OPENAI_API_KEY=[redacted] PATH=/usr/bin"},
		"a URL":                  {"GET /v1beta/models?api_key=" + canary + "&alt=sse", "GET /v1beta/models?api_key=[redacted]&alt=sse"},
		"a password":             {`password: '` + canary + `'`, `password: '[redacted]'`},
		"a provider's key":       {"using sk-ant-api03-" + canary, "using [redacted]"},
		"a GitHub token":         {"ghp_" + canary + " x", "[redacted] x"},
		"a private key in JSON":  {`"-----BEGIN PRIVATE KEY-----\n` + canary + `\n-----END PRIVATE KEY-----" x`, `"[redacted]" x`},
		"a private key, cut off": {"-----BEGIN EC PRIVATE KEY----- " + canary, "[redacted]"},
	} {
		var l redact.Lines
		if got := l.Line(c.in); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", name, c.in, got, c.want)
		}
	}
}

// A key of several lines is masked in all of them, also where its beginning was
// not wanted, and what follows it is not.
func TestLinesOfAPrivateKey(t *testing.T) {
	t.Parallel()
	key := []string{"x -----BEGIN RSA PRIVATE KEY-----", canary + "/A+" + canary, canary + "==", "-----END RSA PRIVATE KEY----- y", "after"}
	var l redact.Lines
	var got []string
	for _, line := range key {
		got = append(got, l.Line(line))
	}
	if want := []string{"x [redacted]", "[redacted]", "[redacted]", "[redacted] y", "after"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	l = redact.Lines{}
	l.Skip(key[0])
	if got := l.Line(key[1]); got != redact.Mask {
		t.Errorf("after a beginning that was left out: %q", got)
	}
	l.Skip(key[3])
	if got := l.Line("after"); got != "after" {
		t.Errorf("after an end that was left out: %q", got)
	}
}

// FuzzLines: whatever stands around it, a header's secret does not come out.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{"", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "token=", "\xff", `{"a":"`} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if len(before)+len(after) > 4096 {
			return
		}
		var l redact.Lines
		l.Line(before)
		if got := l.Line(before + " api_key=" + canary + " " + after); strings.Contains(got, canary) && !strings.Contains(before+after, canary) {
			t.Errorf("%q", got)
		}
	})
}
