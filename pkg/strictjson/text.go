package strictjson

import (
	"unicode/utf16"
	"unicode/utf8"
)

// str scans a string and returns what it means.
func (s *scanner) str() ([]byte, *Error) {
	s.pos++ // the quotation mark
	start, escaped := s.pos, false
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			raw := s.data[start:s.pos]
			s.pos++
			if escaped {
				return unquote(raw), nil
			}
			return raw, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, &Error{Kind: KindSyntax}
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, n := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && n == 1 {
				return nil, &Error{Kind: KindEncoding}
			}
			s.pos += n
		}
	}
	return nil, &Error{Kind: KindSyntax}
}

// escape scans one escape sequence, of a surrogate pair both.
func (s *scanner) escape() *Error {
	rest := s.data[s.pos:]
	if len(rest) < 2 {
		return &Error{Kind: KindSyntax}
	}
	switch rest[1] {
	case '"', '\\', '/', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'b', 'f':
		s.pos += 2
		return s.control(0)
	case 'u':
	default:
		return &Error{Kind: KindSyntax}
	}
	r, ok := hex4(rest)
	if !ok {
		return &Error{Kind: KindSyntax}
	}
	s.pos += 6
	if utf16.IsSurrogate(r) {
		low, ok := hex4(rest[6:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return &Error{Kind: KindSurrogate}
		}
		s.pos += 6
	}
	return s.control(r)
}

// control refuses the C0 controls other than tab, CR and LF.
func (s *scanner) control(r rune) *Error {
	if r >= ' ' || r == '\t' || r == '\n' || r == '\r' || s.opts.AllowControls {
		return nil
	}
	return &Error{Kind: KindControl}
}

// hex4 reads \uXXXX at the beginning of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unquote resolves the escapes of a string that was scanned.
func unquote(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		switch c := raw[i+1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(raw[i:])
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i+6:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			out = utf8.AppendRune(out, r)
			i += 4
		default:
			out = append(out, c)
		}
		i += 2
	}
	return out
}
