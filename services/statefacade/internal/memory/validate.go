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

// validate checks key, kind, content type, size and expected revision. What it
// lets through is text: a memory goes into prompts.
func validate(_ context.Context, w *write) error {
	p := w.put
	bad := func(detail string) error {
		return fault.New(fault.InvalidRequest, "memory.validate", fault.Detail(detail))
	}
	switch {
	case !validKey(p.Key):
		return bad("key: 1 to 128 of [A-Za-z0-9._:-]")
	case !slices.Contains([]Kind{KindSemantic, KindEpisodicReference, KindProcedural}, p.Kind):
		return bad("kind: semantic, episodic_reference or procedural")
	case p.ContentType != TypeText && p.ContentType != TypeJSON:
		return bad("content_type: text/plain or application/json")
	case len(p.Content) == 0 || len(p.Content) > MaxContentBytes:
		return bad("content: 1 byte to 64 KiB")
	case p.Kind == KindEpisodicReference && len(p.Content) > MaxReferenceBytes:
		return bad("content: a reference has at most 1 KiB")
	case !utf8.Valid(p.Content) || bytes.IndexByte(p.Content, 0) >= 0:
		return bad("content: UTF-8 without NUL")
	case p.ContentType == TypeJSON && !json.Valid(p.Content):
		return bad("content: not JSON")
	case p.Expected != nil && *p.Expected == 0:
		return bad("expected_revision: leave it out where the record must not exist")
	}
	return nil
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
