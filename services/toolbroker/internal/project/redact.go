package project

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// MinSecret is the length of the shortest secret that can be cut out, in bytes: a
// shorter one would be found everywhere.
const MinSecret = 8

// redacted stands where a secret stood.
const redacted = "[redacted]"

// Redactor cuts secrets out of text: as they are, and in the encodings in which a
// server would show a header or a URL that holds them. The zero Redactor cuts
// nothing. A server that means to leak its credential can always disguise it;
// this is for those that are careless.
type Redactor struct{ replacer *strings.Replacer }

// NewRedactor cuts out the secrets, of which each has at least MinSecret bytes.
func NewRedactor(secrets ...string) Redactor {
	var pairs []string
	for _, s := range secrets {
		for _, form := range forms(s) {
			pairs = append(pairs, form, redacted)
		}
	}
	if len(pairs) == 0 {
		return Redactor{}
	}
	return Redactor{strings.NewReplacer(pairs...)}
}

// Cut gives s without the secrets.
func (r Redactor) Cut(s string) string {
	if r.replacer == nil {
		return s
	}
	return r.replacer.Replace(s)
}

// forms are the ways to write a secret, those with more characters first where
// one begins like another.
func forms(s string) []string {
	out := []string{
		s, url.QueryEscape(s), url.PathEscape(s),
		base64.StdEncoding.EncodeToString([]byte(s)), base64.RawStdEncoding.EncodeToString([]byte(s)),
		base64.URLEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
		hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))),
	}
	if quoted, err := json.Marshal(s); err == nil {
		out = append(out, string(quoted[1:len(quoted)-1]))
	}
	return out
}
