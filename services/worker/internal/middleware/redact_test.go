package middleware_test

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/middleware"
)

const all = `{"patterns":["private_key","bearer","jwt","aws_key","github_token"]}`

func TestRedact(t *testing.T) {
	//nolint:gosec // no key: what one looks like
	key := `-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc\n-----END RSA PRIVATE KEY-----`
	for name, c := range map[string]struct{ result, want string }{
		"nothing":              {`{ "b": 1.50, "a":[true,null,"x < y"] }`, `{ "b": 1.50, "a":[true,null,"x < y"] }`},
		"a private key":        {`{"content":[{"type":"text","text":"begin ` + key + ` end"}]}`, `{"content":[{"type":"text","text":"begin [redacted] end"}]}`},
		"half a private key":   {`"` + key[:45] + `"`, `"[redacted]"`},
		"two private keys":     {`"` + key + ` and ` + key + `"`, `"[redacted] and [redacted]"`},
		"a bearer token":       {`{"h":"Authorization: Bearer abc.def-ghi_jkl"}`, `{"h":"Authorization: [redacted]"}`},
		"a JWT":                {`["eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"]`, `["[redacted]"]`},
		"an AWS key":           {`"AKIAIOSFODNN7EXAMPLE"`, `"[redacted]"`},
		"an AWS secret":        {`"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"`, `"[redacted]"`},
		"a GitHub token":       {`"ghp_abcdefghijklmnopqrst"`, `"[redacted]"`},
		"in a key":             {`{"AKIAIOSFODNN7EXAMPLE":{"n":[]}}`, `{"[redacted]":{"n":[]}}`},
		"numbers stay exact":   {`{"n":12345678901234567890.10,"s":"ghp_abcdefghijklmnopqrst","e":{}}`, `{"n":12345678901234567890.10,"s":"[redacted]","e":{}}`},
		"no HTML is escaped":   {`{"s":"<a> ghp_abcdefghijklmnopqrst","l":[1,[2,{"a":{}}],3]}`, `{"s":"<a> [redacted]","l":[1,[2,{"a":{}}],3]}`},
		"escapes hide nothing": {`"\u0041KIAIOSFODNN7EXAMPLE"`, `"[redacted]"`},
		"text that is no JSON": {`Bearer abcdefghijkl {`, `"[redacted] {"`},
		"text after a value":   {`"x" Bearer abcdefghijkl`, `"\"x\" [redacted]"`},
		"an end too many":      {`"x"}`, `"\"x\"}"`},
		"what only looks alike": {
			`"bearer of news; AKIA; eyJ; ghp_; -----BEGIN PUBLIC KEY-----"`, `"bearer of news; AKIA; eyJ; ghp_; -----BEGIN PUBLIC KEY-----"`,
		},
	} {
		got, err := call(t, wrapped(t, &tool{result: c.result}, "redact", all), "a", "fs.read")
		if got != c.want || err != nil {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
}

// Only what was named is masked.
func TestRedactOnePattern(t *testing.T) {
	got, err := call(t, wrapped(t, &tool{result: `"Bearer abcdefghijkl AKIAIOSFODNN7EXAMPLE"`}, "redact", `{"patterns":["aws_key"]}`), "a", "fs.read")
	if got != `"Bearer abcdefghijkl [redacted]"` || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

// FuzzRedact: whatever a tool answers becomes JSON without the secret, and what
// has none stays as it is.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{`{"a":["Bearer abcdefghijkl",1e9,null,{"b":{}}]}`, `{"a":`, `"\ud800"`, "\xff", `[]]`, `1 2`, `"-----BEGIN PRIVATE KEY-----x"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, result string) {
		if result == "" {
			return
		}
		got, err := call(t, wrapped(t, &tool{result: result}, "redact", all), "a", "fs.read")
		if err != nil || !json.Valid([]byte(got)) {
			t.Fatalf("%q became %q, %v", result, got, err)
		}
		again, err := call(t, wrapped(t, &tool{result: got}, "redact", all), "a", "fs.read")
		if err != nil || again != got {
			t.Fatalf("%q became %q and then %q", result, got, again)
		}
	})
}

// FuzzPolicy: no options panic, and what is taken can be called through.
func FuzzPolicy(f *testing.F) {
	for _, name := range []string{"tool_call_limit", "tool_result_limit", "tool_deny", "redact"} {
		f.Add(name, `{"max":1,"max_bytes":64,"tool_ids":["a.b"],"patterns":["jwt"]}`)
	}
	f.Fuzz(func(t *testing.T, name, options string) {
		chain, err := middleware.New(steps(name, options))
		if err != nil {
			return
		}
		tl := &tool{result: `"` + strings.Repeat("x", 100) + `"`}
		if chain.Wrap(facades(tl)).Tools == nil {
			t.Fatal("no tools")
		}
	})
}

func facades(tl *tool) harness.Facades { return harness.Facades{Tools: tl} }
