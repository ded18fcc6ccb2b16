package strictjson

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind says which rule a document broke.
type Kind string

// The kinds of faults. KindSize is a request that is too large; all others are
// an invalid request.
const (
	KindSyntax       Kind = "not valid JSON"
	KindTrailing     Kind = "data after the value"
	KindSize         Kind = "larger than allowed"
	KindDepth        Kind = "nested deeper than allowed"
	KindEncoding     Kind = "not valid UTF-8"
	KindSurrogate    Kind = "half a surrogate pair"
	KindControl      Kind = "control character in a string"
	KindDuplicateKey Kind = "key given twice"
	KindCaseVariant  Kind = "keys that differ only in case"
	KindUnknownField Kind = "unknown field"
	KindMissingField Kind = "required field missing"
	KindType         Kind = "value of the wrong type"
	KindNumber       Kind = "number out of range"
)

// Error is what was wrong with a document, and where.
type Error struct {
	// Kind is the rule.
	Kind Kind
	// Path is a JSON Pointer (RFC 6901) to the fault, "" for the whole document.
	// Its segments are keys of the document: bounded and printable, but chosen
	// by whoever wrote it.
	Path string
}

// Error names kind and path, never a value.
func (e *Error) Error() string {
	if e.Path == "" {
		return "strictjson: " + string(e.Kind)
	}
	return "strictjson: " + e.Path + ": " + string(e.Kind)
}

// Bounds of a path in an error, in bytes.
const (
	maxSegment = 64
	maxPath    = 512
)

// in moves the error below a key, while the scanner unwinds.
func (e *Error) in(key []byte) *Error {
	return e.below(segment(key))
}

// at moves the error below an index.
func (e *Error) at(i int) *Error {
	return e.below(strconv.Itoa(i))
}

func (e *Error) below(seg string) *Error {
	if len(e.Path)+len(seg)+1 <= maxPath {
		e.Path = "/" + seg + e.Path
	}
	return e
}

// segment makes a key fit for an error text and a JSON Pointer.
func segment(key []byte) string {
	var b strings.Builder
	for len(key) > 0 && b.Len() < maxSegment {
		r, n := utf8.DecodeRune(key)
		key = key[n:]
		switch {
		case r == '~':
			b.WriteString("~0")
		case r == '/':
			b.WriteString("~1")
		case !unicode.IsPrint(r):
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r)
		}
	}
	if len(key) > 0 {
		b.WriteString("…")
	}
	return b.String()
}
