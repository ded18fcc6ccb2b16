// Package toolschema checks the arguments that a person gave a tool call against
// the tool's JSON Schema, which bind brought.
//
// The broker has compiled the schema before and will check the arguments again;
// the worker asks for itself, since what it refuses here reaches no harness. A
// reference out of the schema is an error and is never fetched.
package toolschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
)

// Bounds of a schema and of what it may cause.
const (
	// MaxBytes and MaxDepth of its JSON.
	MaxBytes = 64 << 10
	MaxDepth = 64
	// maxWork bounds how many schemas stand behind the root once references are
	// written out: short chains of references can make one check take years.
	maxWork = 50_000
	// maxExponent bounds the exponent of a number in arguments: exact arithmetic
	// with 1e-999999 keeps a processor busy.
	maxExponent = 400
	// maxPlace bounds what an error tells, in bytes.
	maxPlace = 400
)

// location names a schema inside the compiler. Nothing is at it.
const location = "cofferdam:///arguments.json"

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// Compile compiles the schema of a tool's arguments. Drafts 4 to 2020-12 are
// understood, 2020-12 where none is named. Its errors may quote the schema.
func Compile(raw json.RawMessage) (s *Schema, err error) {
	defer func() {
		if v := recover(); v != nil { // what the library did not think of
			s, err = nil, fmt.Errorf("toolschema: compiling panicked: %v", v)
		}
	}()
	// Names of arguments may well differ in case only.
	if err := strictjson.Check(raw, strictjson.Options{MaxBytes: MaxBytes, MaxDepth: MaxDepth, AllowCaseVariants: true}); err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("toolschema: the schema is not an object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	if work(compiled) > maxWork {
		return nil, fmt.Errorf("toolschema: the schema stands for more than %d schemas once its references are written out", maxWork)
	}
	return &Schema{compiled}, nil
}

// nowhere loads nothing: what is not in the schema itself does not exist. The
// meta-schemas of the drafts are part of the library.
type nowhere struct{}

func (nowhere) Load(string) (any, error) {
	return nil, errors.New("references out of the schema are not followed")
}

// Check checks arguments, which are one strict JSON object. The error names a
// place in them and no value.
func (s *Schema) Check(arguments []byte) (err error) {
	unchecked := errors.New("arguments: cannot be checked")
	defer func() {
		if v := recover(); v != nil {
			err = unchecked
		}
	}()
	var args map[string]any
	if strictjson.Unmarshal(arguments, &args, strictjson.Options{}) != nil || args == nil {
		return errors.New("arguments: one JSON object")
	}
	if huge(args) {
		return errors.New("arguments: number out of range")
	}
	verr := s.compiled.Validate(args)
	if verr == nil {
		return nil
	}
	ve, ok := errors.AsType[*jsonschema.ValidationError](verr)
	if !ok {
		return unchecked
	}
	// Of several, always the same for the same arguments.
	return errors.New(slices.Min(places(ve, nil)))
}

// places are where the errors are that have no further cause.
func places(e *jsonschema.ValidationError, into []string) []string {
	if len(e.Causes) == 0 {
		return append(into, place(e))
	}
	for _, c := range e.Causes {
		into = places(c, into)
	}
	return into
}

func place(e *jsonschema.ValidationError) string {
	var b strings.Builder
	b.WriteString("arguments")
	for _, segment := range e.InstanceLocation {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(segment))
	}
	keyword := "not allowed"
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		keyword = path[0]
	}
	return clip(b.String()) + ": " + clip(keyword)
}

// clip makes names that somebody chose fit for an error text.
func clip(s string) string {
	return event.Truncate(strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, s), maxPlace)
}

// huge reports whether a number's exponent is out of bounds.
func huge(v any) bool {
	switch v := v.(type) {
	case json.Number:
		i := strings.IndexAny(v.String(), "eE")
		if i < 0 {
			return false
		}
		n, err := strconv.Atoi(strings.TrimPrefix(v.String()[i+1:], "+"))
		return err != nil || n > maxExponent || n < -maxExponent
	case map[string]any:
		for _, member := range v {
			if huge(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, huge)
	}
	return false
}
