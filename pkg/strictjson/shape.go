package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

type kind int

const (
	kindAny kind = iota
	kindStruct
	kindMap
	kindList
	kindString
	kindBool
	kindInt
	kindUint
	kindFloat
	// kindSelf decodes itself: json.Unmarshaler or encoding.TextUnmarshaler.
	kindSelf
)

// shape is what a Go type lets a document look like.
type shape struct {
	kind     kind
	typ      reflect.Type // without its pointers
	bits     int          // of an integer
	length   int          // of an array; 0 for a slice
	nullable bool         // a pointer or an interface
	fields   map[string]field
	required int // how many of the fields
}

type field struct {
	typ      reflect.Type
	index    int
	optional bool
}

var anything = &shape{kind: kindAny, nullable: true}

// shapes remembers a pure function of a type.
var shapes sync.Map // map[reflect.Type]*shape

func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		if sh, ok := known.(*shape); ok {
			return sh
		}
	}
	sh := newShape(t)
	shapes.Store(t, sh)
	return sh
}

func newShape(t reflect.Type) *shape {
	nullable := false
	for t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), true
	}
	sh := &shape{typ: t, nullable: nullable}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[json.Number]():
		return anything
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		sh.kind = kindSelf
		return sh
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		sh.kind = kindSelf
		return sh
	}
	switch t.Kind() {
	case reflect.Struct:
		sh.kind = kindStruct
		sh.fields, sh.required = fieldsOf(t)
	case reflect.Map:
		sh.kind = kindMap
	case reflect.Slice:
		sh.kind = kindList
		if t.Elem().Kind() == reflect.Uint8 {
			sh.kind = kindString // base64
		}
	case reflect.Array:
		sh.kind, sh.length = kindList, t.Len()
	case reflect.String:
		sh.kind = kindString
	case reflect.Bool:
		sh.kind = kindBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		sh.kind, sh.bits = kindInt, t.Bits()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		sh.kind, sh.bits = kindUint, t.Bits()
	case reflect.Float32, reflect.Float64:
		sh.kind = kindFloat
	default:
		sh.nullable = true
	}
	return sh
}

// fieldsOf are the members that encoding/json would take for a struct: its own
// first, then those of embedded structs that nothing nearer hides.
func fieldsOf(t reflect.Type) (fields map[string]field, required int) {
	fields = make(map[string]field)
	for level := []reflect.Type{t}; len(level) > 0; {
		var deeper []reflect.Type
		for _, t := range level {
			for f := range t.Fields() {
				tag := f.Tag.Get("json")
				name, opts, _ := strings.Cut(tag, ",")
				if embedded := structBelow(f.Type); f.Anonymous && name == "" && embedded != nil {
					deeper = append(deeper, embedded)
					continue
				}
				if name == "" {
					name = f.Name
				}
				if _, hidden := fields[name]; hidden || tag == "-" || !f.IsExported() {
					continue
				}
				optional := slices.ContainsFunc(strings.Split(opts, ","), func(o string) bool {
					return o == "omitempty" || o == "omitzero"
				})
				if !optional {
					required++
				}
				fields[name] = field{typ: f.Type, index: len(fields), optional: optional}
			}
		}
		level = deeper
	}
	return fields, required
}

func structBelow(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// takes reports whether a value that begins with c may stand where the shape
// is. Anything that begins no value is left to the number scanner to refuse.
func (sh *shape) takes(c byte) bool {
	switch {
	case sh.kind == kindAny:
		return true
	case c == '{':
		return sh.kind == kindStruct || sh.kind == kindMap
	case c == '[':
		return sh.kind == kindList
	case c == '"':
		return sh.kind == kindString
	case c == 't', c == 'f':
		return sh.kind == kindBool
	case c == '-', '0' <= c && c <= '9':
		return sh.kind == kindInt || sh.kind == kindUint || sh.kind == kindFloat
	default:
		return true
	}
}

// firstMissing is the first required field, in the order of the type, that an
// object does not have.
func (sh *shape) firstMissing(seen *keys) string {
	first, name := len(sh.fields), ""
	for n, f := range sh.fields {
		if !f.optional && f.index < first && !seen.has(n) {
			first, name = f.index, n
		}
	}
	return name
}
