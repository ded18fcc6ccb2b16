package memory

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// widening is what a text would have an agent do that no memory may say. A memory
// grants nothing whatever it says: tools, approval and network are decided
// elsewhere. These rules keep out what is written to talk a later run into asking
// for more, or into telling its reader that somebody allowed it. They are a set of
// known ways to say so, and no proof.
type widening struct {
	name string
	find *regexp.Regexp
}

// The rules see a text in lower case, with single blanks, and without characters
// that nobody sees.
var wideners = []widening{
	{"instructions", regexp.MustCompile(`\b(?:ignore|disregard|forget|override|bypass)\s(?:all\s|any\s|every\s|the\s|your\s|of\s|these\s|those\s)*(?:previous|prior|earlier|above|system|safety|security)\s(?:\w+\s)?(?:instructions?|prompts?|rules?|polic(?:y|ies)|messages?|guidelines?)`)},
	{"instructions", regexp.MustCompile(`(?:<\|?(?:system|im_start|im_end)\|?>|\[/?(?:system|inst)\]|^system ?:|\bnew system prompt\b)`)},
	{"approval", regexp.MustCompile(`\b(?:without|skip(?:ping)?|bypass(?:ing)?|disable|no need for|never (?:ask|wait) for|do(?:n't| not) (?:ask|wait) for)\s(?:\w+\s){0,3}(?:approvals?|confirmation|permission|consent|authori[sz]ation)\b`)},
	{"approval", regexp.MustCompile(`\b(?:always|automatically|auto)[ -](?:approve|accept|allow|confirm)\b|\b(?:is|are|were|was|have been|has been) (?:pre-?approved|already approved|pre-?authori[sz]ed)\b`)},
	{"permissions", regexp.MustCompile(`\b(?:you|the agent|the assistant|this agent|i) (?:now )?(?:(?:have|has|are granted|is granted|get) (?:\w+ ){0,2}(?:permissions?|access|privileges?|rights?) (?:to|for|on)|(?:are|is) (?:now )?(?:allowed|permitted|authori[sz]ed|entitled|an? (?:admin|administrator|root|operator)))\b`)},
	{"permissions", regexp.MustCompile(`\b(?:grant|give|assign|elevate|escalate|raise|widen|extend)\s(?:\w+\s){0,4}(?:admin|administrator|root|sudo|operator|permissions?|privileges?|capabilit(?:y|ies)|scopes?)\b`)},
	{"permissions", regexp.MustCompile(`--dangerously-[a-z-]+|--allow-weak-isolation|--(?:yolo|no-sandbox|full-auto|allow-all[a-z-]*)\b|\b(?:bypasspermissions|acceptedits|autoapprove|allow_?all|skip_?permissions|danger-full-access)\b`)},
	{"permissions", regexp.MustCompile(`["']?\b(?:approve_tools|allowed_?tools|memory_scopes|permissions?|permission_?mode|approval_?policy|sandbox_?mode|shared_learning|administrators)\b["']?\s?[:=]`)},
	{"tools", regexp.MustCompile(`\b(?:you|the agent|the assistant) (?:may|can|should|must) (?:also |now |always |freely )?(?:use|call|run|invoke|execute) (?:\w+ ){0,2}(?:any|every|all|other|hidden|internal|undeclared|forbidden|denied|blocked) (?:\w+ ){0,2}(?:tools?|commands?|functions?|servers?)\b`)},
	{"tools", regexp.MustCompile(`\b(?:enable|install|register|add|connect|unlock|load) (?:\w+ ){0,3}(?:mcp|tool) ?(?:servers?|tools?|plugins?)\b|\bmcpservers\b`)},
	{"network", regexp.MustCompile(`\b(?:allow|enable|open|permit|unblock|whitelist|allowlist|grant) (?:\w+ ){0,4}(?:network|internet|egress|outbound|outgoing|firewall|domains?|hosts?|ports?)\b|\b(?:no_proxy|https?_proxy)\b ?=`)},
	{"network", regexp.MustCompile(`\b(?:disable|turn off|switch off|remove|stop|circumvent|evade|escape)\s(?:\w+ ){0,3}(?:sandbox(?:ing)?|firewall|proxy|network polic(?:y|ies)|seccomp|isolation|guardrails?|redaction)\b`)},
	{"secrets", regexp.MustCompile(`\b(?:send|post|upload|forward|exfiltrate|leak|reveal|print|tell)\s(?:\w+ ){0,4}(?:secrets?|credentials?|api keys?|tokens?|passwords?|system prompt|environment variables?)\b`)},
}

// widens names the rule that a content breaks, or is empty.
func widens(contentType, content string) string {
	text := plain(content)
	if contentType == TypeJSON { // as it is written, and as it is read
		text += "\n" + plain(strings.Join(stringsOf(content), "\n"))
	}
	for _, w := range wideners {
		if w.find.MatchString(text) {
			return w.name
		}
	}
	return ""
}

// plain undoes what makes a text look other than it reads.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.In(r, unicode.Cf, unicode.Mn, unicode.Cc):
			return -1
		case r == '\u2019' || r == '\u2018':
			return '\''
		case unicode.Is(unicode.Pd, r):
			return '-'
		}
		return r
	}, norm.NFKD.String(text))
	return strings.ToLower(strings.Join(strings.Fields(text), " "))
}

// stringsOf are all keys and strings of a JSON text, as they are read.
func stringsOf(raw string) []string {
	var out []string
	d := json.NewDecoder(strings.NewReader(raw))
	for {
		t, err := d.Token()
		if err != nil {
			return out
		}
		if s, ok := t.(string); ok {
			out = append(out, s)
		}
	}
}
