package event

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"cofferdam.dev/pkg/strictjson"
)

// SanitizeText makes text from outside fit for an event: what is not UTF-8 (half
// a surrogate pair included) and C0 controls other than tab, CR and LF become
// U+FFFD.
func SanitizeText(s string) string {
	if clean(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if forbidden(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Truncate cuts s to at most that many bytes, at the boundary of a rune.
func Truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := max(most, 0)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// ProjectText gives text from outside as a JSON string of at most that many
// bytes, sanitized and cut at the boundary of a rune. cut says whether anything
// is missing.
func ProjectText(s string, most int) (_ Value, cut bool) {
	s = SanitizeText(s)
	size := len(`""`)
	for i, r := range s {
		size += quotedLen(r)
		if size > most {
			s, cut = s[:i], true
			break
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// A string that is UTF-8 can always be encoded into memory.
	if err := enc.Encode(s); err != nil {
		return `""`, true
	}
	return Value(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), cut
}

// quotedLen is how many bytes encoding/json writes for a rune in a string.
func quotedLen(r rune) int {
	switch r {
	case '"', '\\', '\n', '\r', '\t':
		return 2
	case '\u2028', '\u2029':
		return 6
	default:
		return utf8.RuneLen(r)
	}
}

// ProjectJSON gives JSON from outside as a value of at most that many bytes,
// with its strings sanitized. What is no acceptable JSON, nests too deep or is
// too large becomes a string that begins like it. cut says whether anything is
// missing. It never fails: an odd result of a tool must not end a run.
func ProjectJSON(text []byte, most int) (_ Value, cut bool) {
	cleaned := sanitizeStrings(text)
	if kept, err := compact(cleaned); err == nil && len(kept) <= most {
		o := strictjson.Options{MaxBytes: most, MaxDepth: MaxArgumentsDepth, AllowCaseVariants: true}
		if strictjson.Check([]byte(kept), o) == nil {
			return Value(kept), false
		}
	}
	return ProjectText(string(text), most)
}

// sanitizeStrings replaces what may not stand in a string of JSON text, raw or
// escaped, by U+FFFD.
func sanitizeStrings(text []byte) []byte {
	const replacement = `\ufffd`
	out := make([]byte, 0, len(text))
	inString := false
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == '"':
			inString = !inString
		case inString && r == '\\':
			r, n = escaped(text[i:])
			if r == utf8.RuneError {
				out = append(out, replacement...)
				i += n
				continue
			}
		case inString && (r < ' ' || r == utf8.RuneError && n == 1):
			out = append(out, replacement...)
			i += n
			continue
		}
		out = append(out, text[i:i+n]...)
		i += n
	}
	return out
}

// escaped reads the escape at the beginning of b: its length, and RuneError if
// it stands for nothing that may be in an event.
func escaped(b []byte) (rune, int) {
	if len(b) < 2 {
		return '\\', len(b)
	}
	switch b[1] {
	case 'b', 'f':
		return utf8.RuneError, 2
	case 'u':
	default:
		return '\\', 2
	}
	r, ok := unit(b)
	if !ok {
		return '\\', 2
	}
	if low, ok := unit(b[6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
		return '\\', 12
	}
	if utf16.IsSurrogate(r) || forbidden(r) {
		return utf8.RuneError, 6
	}
	return '\\', 6
}

// unit reads \uXXXX at the beginning of b.
func unit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(r), err == nil
}
