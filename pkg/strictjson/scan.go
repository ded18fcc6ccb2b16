package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
)

// scanner walks a document once, beside the shape that it has to fit.
type scanner struct {
	data []byte
	pos  int
	opts Options
}

// document scans all of the data. Its error is an *Error.
func (s *scanner) document(sh *shape) error {
	if err := s.value(sh, false, 0); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		return &Error{Kind: KindTrailing}
	}
	return nil
}

// value scans one value that stands depth levels deep. nullable says that null
// is fine although the type has no room for it: the field may be absent.
func (s *scanner) value(sh *shape, nullable bool, depth int) *Error {
	s.space()
	if s.pos == len(s.data) {
		return &Error{Kind: KindSyntax}
	}
	c := s.data[s.pos]
	switch {
	case c == 'n' && sh.nullable:
		return s.literal("null")
	case sh.kind == kindSelf:
		return s.self(sh, depth)
	case c == 'n' && nullable:
		return s.literal("null")
	case c == 'n', !sh.takes(c):
		return &Error{Kind: KindType}
	}
	switch c {
	case '{':
		return s.object(sh, depth+1)
	case '[':
		return s.array(sh, depth+1)
	case '"':
		_, err := s.str()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	default:
		return s.number(sh)
	}
}

// object scans what begins with {. Members of a struct have to be its fields.
func (s *scanner) object(sh *shape, depth int) *Error {
	if depth > s.opts.MaxDepth {
		return &Error{Kind: KindDepth}
	}
	s.pos++
	var seen keys
	missing := sh.required
	for s.space(); !s.take('}'); s.space() {
		if seen.n > 0 && !s.take(',') {
			return &Error{Kind: KindSyntax}
		}
		s.space()
		key, err := s.key(&seen)
		if err != nil {
			return err
		}
		member, optional := anything, false
		switch sh.kind {
		case kindStruct:
			f, known := sh.fields[string(key)]
			if !known {
				return (&Error{Kind: KindUnknownField}).in(key)
			}
			member, optional = shapeOf(f.typ), f.optional
			if !optional {
				missing--
			}
		case kindMap:
			member = shapeOf(sh.typ.Elem())
		default:
		}
		if err := s.value(member, optional, depth); err != nil {
			return err.in(key)
		}
	}
	if missing > 0 && s.opts.RequireFields {
		return (&Error{Kind: KindMissingField}).in([]byte(sh.firstMissing(&seen)))
	}
	return nil
}

// key scans a key and its colon, and refuses one that was there.
func (s *scanner) key(seen *keys) ([]byte, *Error) {
	if s.pos == len(s.data) || s.data[s.pos] != '"' {
		return nil, &Error{Kind: KindSyntax}
	}
	key, err := s.str()
	if err != nil {
		return nil, err
	}
	twice, variant := seen.add(key)
	switch {
	case twice:
		return nil, (&Error{Kind: KindDuplicateKey}).in(key)
	case variant && !s.opts.AllowCaseVariants:
		return nil, (&Error{Kind: KindCaseVariant}).in(key)
	}
	s.space()
	if !s.take(':') {
		return nil, &Error{Kind: KindSyntax}
	}
	return key, nil
}

func (s *scanner) array(sh *shape, depth int) *Error {
	if depth > s.opts.MaxDepth {
		return &Error{Kind: KindDepth}
	}
	s.pos++
	elem := anything
	if sh.kind == kindList {
		elem = shapeOf(sh.typ.Elem())
	}
	i := 0
	for s.space(); !s.take(']'); s.space() {
		if i > 0 && !s.take(',') {
			return &Error{Kind: KindSyntax}
		}
		if sh.length > 0 && i == sh.length {
			return (&Error{Kind: KindType}).at(i)
		}
		if err := s.value(elem, false, depth); err != nil {
			return err.at(i)
		}
		i++
	}
	return nil
}

// self scans a value as any, then asks the type itself. What the type says is
// dropped: it may quote the value.
func (s *scanner) self(sh *shape, depth int) *Error {
	start := s.pos
	if err := s.value(anything, false, depth); err != nil {
		return err
	}
	switch v := reflect.New(sh.typ).Interface().(type) {
	case json.Unmarshaler:
		if v.UnmarshalJSON(s.data[start:s.pos]) != nil {
			return &Error{Kind: KindType}
		}
	case encoding.TextUnmarshaler:
		if s.data[start] != '"' {
			return &Error{Kind: KindType}
		}
		if v.UnmarshalText(unquote(s.data[start+1:s.pos-1])) != nil {
			return &Error{Kind: KindType}
		}
	}
	return nil
}

// maxNumber bounds a number, in characters: none that anybody means is longer,
// and big-number parsers are quadratic.
const maxNumber = 128

// number scans by the grammar of RFC 8259, section 6. One that no float64 can
// hold would become an infinity somewhere; it is refused.
func (s *scanner) number(sh *shape) *Error {
	start := s.pos
	s.take('-')
	if !s.take('0') && !s.digits() {
		return &Error{Kind: KindSyntax}
	}
	integer := true
	if s.take('.') {
		integer = false
		if !s.digits() {
			return &Error{Kind: KindSyntax}
		}
	}
	if s.take('e') || s.take('E') {
		integer = false
		_ = s.take('+') || s.take('-')
		if !s.digits() {
			return &Error{Kind: KindSyntax}
		}
	}
	if s.pos-start > maxNumber {
		return &Error{Kind: KindNumber}
	}
	text := s.data[start:s.pos]
	var err error
	switch {
	case sh.kind == kindInt && integer:
		_, err = strconv.ParseInt(string(text), 10, sh.bits)
	case sh.kind == kindUint && integer && text[0] != '-':
		_, err = strconv.ParseUint(string(text), 10, sh.bits)
	case sh.kind == kindInt || sh.kind == kindUint:
		return &Error{Kind: KindType}
	case !integer:
		_, err = strconv.ParseFloat(string(text), 64)
	}
	if err != nil {
		return &Error{Kind: KindNumber}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) literal(want string) *Error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(want)) {
		return &Error{Kind: KindSyntax}
	}
	s.pos += len(want)
	return nil
}
