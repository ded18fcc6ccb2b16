// Package redact masks secrets in text that somebody else wrote, before it comes
// to a log or to a model: the contract's section "Traces".
//
// It knows secrets by their shape, so it is a net and no wall: what must not be
// seen at all is not written.
package redact

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Mask stands where a secret stood.
const Mask = "[redacted]"

// Names of the patterns that somebody may choose among.
const (
	PrivateKey  = "private_key"
	Bearer      = "bearer"
	JWT         = "jwt"
	AWSKey      = "aws_key"
	GitHubToken = "github_token"
)

// patterns by name. Each matches to the end of the text what was cut off in the
// middle: half a key is a secret too.
var patterns = map[string]*regexp.Regexp{
	PrivateKey: regexp.MustCompile(keyBegins + `(?s:.*?)(?:` + keyEnds + `|\z)`),
	Bearer:     regexp.MustCompile(`(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{8,}`),
	JWT:        regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?`),
	AWSKey:     regexp.MustCompile(`\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}|(?i)\baws_?secret_?(?:access_?)?key["']?\s*[:=]\s*["']?[A-Za-z0-9/+=]{16,}`),
	GitHubToken: regexp.MustCompile(
		`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})`),
}

const (
	keyBegins = `-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`
	keyEnds   = `-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`
)

var (
	begin = regexp.MustCompile(keyBegins)
	end   = regexp.MustCompile(keyEnds)
	// named is a value whose name says that it is a secret: in an environment, in a
	// header, in JSON, in a URL. The name stays, for whoever has to find out why.
	named = regexp.MustCompile(`(?i)([a-z0-9_.-]{0,64}(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credential|authorization|cookie)s?["']?\s{0,8}[:=]\s{0,8}["']?(?:(?:basic|bearer)\s{1,8})?)[^\s"',;&]{6,}`)
	// known are keys that say so by how they begin.
	known = regexp.MustCompile(`\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{20,}|\bxox[a-z]-[A-Za-z0-9-]{10,}|\bglpat-[A-Za-z0-9_-]{16,}|\bnpm_[A-Za-z0-9]{20,}`)
)

// Names are the names of the patterns, in order.
func Names() []string { return slices.Sorted(maps.Keys(patterns)) }

// Pattern gives the pattern of a name.
func Pattern(name string) (*regexp.Regexp, bool) {
	p, ok := patterns[name]
	return p, ok
}

// Lines masks a text that comes line by line, with everything that the package
// knows. The zero value is ready; it is not safe for concurrent use.
type Lines struct{ inKey bool }

// Line masks the next line. The lines within a private key become Mask as a whole.
func (l *Lines) Line(s string) string {
	if l.inKey {
		at := end.FindStringIndex(s)
		if at == nil {
			return Mask
		}
		l.inKey = false
		return Mask + l.Line(s[at[1]:])
	}
	l.Skip(s)
	for _, p := range patterns {
		s = p.ReplaceAllLiteralString(s, Mask)
	}
	s = known.ReplaceAllLiteralString(s, Mask)
	return named.ReplaceAllString(s, "${1}"+Mask)
}

// Skip says that a line, or a part of one, is not wanted. It costs little.
func (l *Lines) Skip(s string) {
	if !strings.Contains(s, "-----") {
		return
	}
	if begins := begin.FindAllStringIndex(s, -1); len(begins) > 0 {
		l.inKey, s = true, s[begins[len(begins)-1][1]:]
	}
	if l.inKey && end.MatchString(s) {
		l.inKey = false
	}
}
