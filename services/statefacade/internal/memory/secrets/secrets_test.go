package secrets

import (
	"regexp"
	"strings"
	"testing"
)

// Assembled here, so that no scanner of the tree finds any of them.
var (
	aws     = "AKIA" + "Z7QWERT6YUIOP3AS"
	github  = "ghp_" + "x7Kd93hfLq0PzWm2Rt6YbNc8VsJ4aEuG1iTo"
	jwt     = "eyJhbGciOiJFZERTQSIsInR5cCI6ImNhcCtqd3QifQ" + ".eyJzdWIiOiJzcGlmZmU6Ly94L3NhbmRib3gvMSJ9." + "c2lnbmF0dXJlLXNpZ25hdHVyZS1zaWduYXR1cmU"
	slack   = "xoxb-" + "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"
	private = "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3S\n-----END " + "PRIVATE KEY-----"
)

func TestSecretsAreCutOut(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text, secret string
		found        int
	}{
		"cloud key":              {"use " + aws + " for the bucket", aws, 1},
		"token of a forge":       {"token=" + github, github, 1},
		"token of a capability":  {"it was " + jwt + " yesterday", jwt, 1},
		"token of a chat":        {"slack_token: " + slack, slack, 1},
		"private key":            {"the key:\n" + private + "\nend", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", 1},
		"half a private key":     {private[:90], private[30:90], 1},
		"header":                 {"Authorization: Bearer aZ3kd8Fj2mQ9xL7vT1", "aZ3kd8Fj2mQ9xL7vT1", 1},
		"basic header":           {"authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy", 1},
		"password in an address": {"postgres://app:hunter2@db/app and mongodb://u:pa%24s@h", "hunter2", 2},
		"generic":                {`api_key = "x8Kq2Lm9Zr4Tn7Vb1Wc6"`, "x8Kq2Lm9Zr4Tn7Vb1Wc6", 1},
		"said":                   {"her password is hunter2! and her cat is Tom", "hunter2!", 1},
		"two in one":             {aws + " and " + github, github, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, n := s.Redact(c.text)
			if n != c.found || strings.Contains(got, c.secret) || !strings.Contains(got, Mask) {
				t.Errorf("%d found: %s", n, got)
			}
			if again, n := s.Redact(got); n != 0 || again != got {
				t.Errorf("again %d: %s", n, again)
			}
		})
	}
}

// What is no secret stays, byte for byte.
func TestTextsStay(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "She drinks coffee, never tea.", "The password policy asks for twelve characters.", "Reset the password at https://example.org/reset?x=1",
		"The API key is in the vault under team/prod.", "See https://user@example.org:8443/path and mailto:a@b.c",
		"Tokens are counted by the tokenizer; a bearer of news came.", `{"theme":"dark","language":"de"}`, "commit 9b2e50001e32cfca699f735bab4913447e4a8724",
		"550e8400-e29b-41d4-a716-446655440000", strings.Repeat("a", 64<<10),
	} {
		if got, n := s.Redact(text); n != 0 || got != text {
			t.Errorf("%.80q: %d found: %.80q", text, n, got)
		}
	}
}

// Every rule can be used, and has a keyword that leads to it.
func TestRules(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.rules) < 200 {
		t.Errorf("%d rules", len(s.rules))
	}
	for _, r := range s.rules {
		find, err := regexp.Compile(r.Regex)
		if err != nil || len(r.Keywords) == 0 || r.Group > find.NumSubexp() {
			t.Errorf("%s: %v", r.ID, err)
		}
		for _, k := range r.Keywords {
			if k == "" || k != strings.ToLower(k) {
				t.Errorf("%s: keyword %q", r.ID, k)
			}
		}
		for _, a := range r.Allow {
			for _, x := range a.Regexes {
				if _, err := regexp.Compile(x); err != nil {
					t.Errorf("%s: %v", r.ID, err)
				}
			}
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range []string{"use " + aws, "password: x1", private, "a://b:c12@d", "\xff" + jwt} {
		f.Add(s)
	}
	s, err := New()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, n := s.Redact(text)
		if (n == 0) != (got == text) {
			t.Errorf("%d found in %q: %q", n, text, got)
		}
	})
}
