// Package strictjson decodes JSON that a decision hangs on.
//
// encoding/json lets through what two readers may understand differently: a
// key that comes twice, a key that differs only in case, bytes that are not
// UTF-8, half a surrogate pair, text after the value. A caller who can make an
// authorizer read one thing and an executor another has won. This package
// refuses all of it, bounds size and depth, and names the place of a fault by
// its path and never by its value.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// Bounds that hold where Options say nothing.
const (
	// DefaultMaxBytes bounds a document, in bytes.
	DefaultMaxBytes = 1 << 20
	// DefaultMaxDepth bounds how deep objects and arrays nest; {} is 1 deep.
	DefaultMaxDepth = 32
)

// Options bound and loosen the decoding. The zero value is the strictest.
type Options struct {
	// MaxBytes bounds the document in bytes; 0 is DefaultMaxBytes.
	MaxBytes int
	// MaxDepth bounds the nesting; 0 is DefaultMaxDepth.
	MaxDepth int
	// AllowControls lets \u0000 and the other C0 controls into strings. Tab, CR
	// and LF are always allowed, as escapes.
	AllowControls bool
	// AllowCaseVariants lets keys of one object differ in case only. A struct
	// takes its exact names all the same: use it for data that is passed on and
	// never decided on.
	AllowCaseVariants bool
	// RequireFields refuses a document that lacks a field of a struct whose tag
	// has neither omitempty nor omitzero.
	RequireFields bool
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	return o
}

// Check reports whether data is exactly one acceptable JSON value. The error
// is an *Error.
func Check(data []byte, o Options) error {
	return check(data, anything, o.withDefaults())
}

// Unmarshal decodes exactly one JSON value into v, a non-nil pointer. Keys have
// to match the fields of a struct exactly; unknown ones are refused. null is
// taken only for a pointer, an interface, a type that decodes itself, or a
// field that may be absent (omitempty, omitzero). Numbers in an interface
// become json.Number and stay exact. Every error about the document is an
// *Error; v is not touched where one is found before decoding.
func Unmarshal(data []byte, v any, o Options) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(v).IsNil() {
		return fmt.Errorf("strictjson: cannot decode into %T, only into a non-nil pointer", v)
	}
	if err := check(data, shapeOf(t.Elem()), o.withDefaults()); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(v) != nil {
		// What the shape of a type cannot tell, such as base64. The cause may
		// quote the document, so it is dropped.
		return &Error{Kind: KindType}
	}
	return nil
}

// Decode reads r to its end and decodes as Unmarshal does. It reads at most one
// byte more than the bound. An error of r is returned wrapped and is no *Error.
func Decode(r io.Reader, v any, o Options) error {
	o = o.withDefaults()
	data, err := io.ReadAll(io.LimitReader(r, int64(o.MaxBytes)+1))
	if err != nil {
		return fmt.Errorf("strictjson: read: %w", err)
	}
	return Unmarshal(data, v, o)
}

func check(data []byte, sh *shape, o Options) error {
	if len(data) > o.MaxBytes {
		return &Error{Kind: KindSize}
	}
	s := scanner{data: data, opts: o}
	return s.document(sh)
}
