// Package secrets finds credentials in texts and cuts them out.
//
// Most rules are those of gitleaks 8.30.1 (gitleaks.json; MIT licence, see
// LICENSE.gitleaks): all that look at contents alone, with their keywords, entropy
// and allow lists. They are data here: the scanner that comes with them brings
// forty modules, some under licences that a shipped binary may not have. What they
// lack for a text that goes into prompts is in own.go.
package secrets

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Mask stands where a secret stood.
const Mask = "[redacted]"

//go:embed gitleaks.json
var gitleaks []byte

// rule finds one kind of secret.
type rule struct {
	ID string `json:"id"`
	// Keywords are in lower case; a text without any has no such secret.
	Keywords []string `json:"keywords"`
	Regex    string   `json:"regex"`
	// Entropy in bits per character that a secret exceeds.
	Entropy float64 `json:"entropy"`
	// Group of the regex that is the secret; 0 is the first one that matched, or
	// everything.
	Group int      `json:"group"`
	Allow []*allow `json:"allow"`

	once sync.Once
	find *regexp.Regexp
}

// allow says what is no secret.
type allow struct {
	All       bool     `json:"all"` // every condition, not any
	Target    string   `json:"target"`
	Regexes   []string `json:"regexes"`
	Stopwords []string `json:"stopwords"`

	once sync.Once
	are  []*regexp.Regexp
}

// Scanner finds secrets. It is safe for concurrent use.
type Scanner struct {
	allow *allow
	rules []*rule
}

// New reads the rules. A rule is compiled when a text has one of its keywords.
func New() (*Scanner, error) {
	var set struct {
		Allow *allow  `json:"allow"`
		Rules []*rule `json:"rules"`
	}
	if err := json.Unmarshal(gitleaks, &set); err != nil {
		return nil, fmt.Errorf("secrets: rules: %w", err)
	}
	return &Scanner{allow: set.Allow, rules: append(set.Rules, own()...)}, nil
}

// span of bytes.
type span struct{ from, to int }

// Redact gives the text with every secret replaced by Mask, and how many there
// were. A text without any stays as it is.
func (s *Scanner) Redact(text string) (clean string, found int) {
	spans := s.spans(text)
	if len(spans) == 0 {
		return text, 0
	}
	var b strings.Builder
	at := 0
	for _, p := range spans {
		b.WriteString(text[at:p.from])
		b.WriteString(Mask)
		at = p.to
	}
	b.WriteString(text[at:])
	return b.String(), len(spans)
}

// spans of all secrets, in order and apart.
func (s *Scanner) spans(text string) []span {
	var all []span
	lower := strings.ToLower(text)
	for _, r := range s.rules {
		if slices.ContainsFunc(r.Keywords, func(k string) bool { return strings.Contains(lower, k) }) {
			all = append(all, s.apply(r, text)...)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.from - b.from })
	var out []span
	for _, p := range all {
		if n := len(out); n > 0 && p.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, p.to)
			continue
		}
		out = append(out, p)
	}
	return out
}

func (s *Scanner) apply(r *rule, text string) []span {
	r.once.Do(func() { r.find = regexp.MustCompile(r.Regex) })
	var out []span
	for _, m := range r.find.FindAllStringSubmatchIndex(text, -1) {
		p := r.secret(m)
		secret := text[p.from:p.to]
		switch {
		case secret == "", secret == Mask:
		case r.Entropy > 0 && entropy(secret) <= r.Entropy:
		case s.allow.says(text, m, secret) || slices.ContainsFunc(r.Allow, func(a *allow) bool { return a.says(text, m, secret) }):
		default:
			out = append(out, p)
		}
	}
	return out
}

// secret is the part of a match that is one.
func (r *rule) secret(m []int) span {
	group := r.Group
	if group == 0 {
		for g := 1; 2*g < len(m); g++ {
			if m[2*g] >= 0 && m[2*g] < m[2*g+1] {
				group = g
				break
			}
		}
	}
	if 2*group >= len(m) || m[2*group] < 0 {
		group = 0
	}
	return span{m[2*group], m[2*group+1]}
}

// says whether a match is no secret.
func (a *allow) says(text string, m []int, secret string) bool {
	a.once.Do(func() {
		for _, r := range a.Regexes {
			a.are = append(a.are, regexp.MustCompile(r))
		}
	})
	target := secret
	switch a.Target {
	case "match":
		target = text[m[0]:m[1]]
	case "line":
		target = line(text, m[0], m[1])
	}
	lower := strings.ToLower(secret)
	regex := slices.ContainsFunc(a.are, func(r *regexp.Regexp) bool { return r.MatchString(target) })
	word := slices.ContainsFunc(a.Stopwords, func(w string) bool { return strings.Contains(lower, strings.ToLower(w)) })
	if a.All {
		return (regex || len(a.Regexes) == 0) && (word || len(a.Stopwords) == 0)
	}
	return regex || word
}

func line(text string, from, to int) string {
	begin := strings.LastIndexByte(text[:from], '\n') + 1
	if n := strings.IndexByte(text[to:], '\n'); n >= 0 {
		return text[begin : to+n]
	}
	return text[begin:]
}

// entropy is Shannon's, in bits per character.
func entropy(s string) float64 {
	counts := make(map[rune]int)
	for _, r := range s {
		counts[r]++
	}
	n, bits := float64(utf8.RuneCountInString(s)), 0.0
	for _, c := range counts {
		p := float64(c) / n
		bits -= p * math.Log2(p)
	}
	return bits
}
