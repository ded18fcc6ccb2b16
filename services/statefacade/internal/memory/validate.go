package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"cofferdam.dev/pkg/fault"
)

const maxKeyBytes = 128

// validate checks key, kind, content type, size, retention, sources and expected
// revision. What it lets through is text: a memory goes into prompts.
func (s *Service) validate(_ context.Context, w *write) error {
	p := w.put
	_, known := s.cfg.Policy.Retention.lifetime(s.cfg.Policy.Retention.profile(p.Scope, p.Retention))
	for _, rule := range []struct {
		ok   bool
		text string
	}{
		{validKey(p.Key), "key: 1 to 128 of [A-Za-z0-9._:-]"},
		{p.Kind.valid(), "kind: semantic, episodic_reference or procedural"},
		{p.ContentType == TypeText || p.ContentType == TypeJSON, "content_type: text/plain or application/json"},
		{len(p.Content) > 0 && len(p.Content) <= MaxContentBytes, "content: 1 byte to 64 KiB"},
		{p.Kind != KindEpisodicReference || len(p.Content) <= MaxReferenceBytes, "content: a reference has at most 1 KiB"},
		{utf8.Valid(p.Content) && bytes.IndexByte(p.Content, 0) < 0, "content: UTF-8 without NUL"},
		{p.ContentType != TypeJSON || json.Valid(p.Content), "content: not JSON"},
		{p.Expected == nil || *p.Expected > 0, "expected_revision: leave it out where the record must not exist"},
		{known, "retention: not one of the operator's profiles"},
		{validSources(p.Sources, p.Key), "sources: at most 16 other records, each once, with their revisions"},
	} {
		if !rule.ok {
			return fault.New(fault.InvalidRequest, "memory.validate", fault.Detail(rule.text))
		}
	}
	return nil
}

func validSources(sources []Source, target string) bool {
	if len(sources) > MaxSources {
		return false
	}
	for i, s := range sources {
		twice := slices.ContainsFunc(sources[:i], func(o Source) bool { return o.Key == s.Key })
		if !validKey(s.Key) || s.Revision == 0 || s.Key == target || twice {
			return false
		}
	}
	return true
}

func validKey(key string) bool {
	if key == "" || len(key) > maxKeyBytes {
		return false
	}
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}
