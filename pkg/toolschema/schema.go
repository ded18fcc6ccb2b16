package toolschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"cofferdam.dev/pkg/strictjson"
)

// Bounds of a schema.
const (
	// MaxBytes of JSON.
	MaxBytes = 64 << 10
	// MaxDepth of its nesting.
	MaxDepth = 64
	// maxWork bounds how many schemas stand behind the root once references are
	// written out. Short chains of references can otherwise make one check take
	// years.
	maxWork = 50_000
)

// location names the schema inside the compiler. Nothing is at it.
const location = "cofferdam:///arguments.json"

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	text     json.RawMessage
}

// Compile compiles the schema of a tool's arguments, which has to be one for
// objects. Its errors are for the operator and may quote the schema.
func Compile(raw json.RawMessage) (s *Schema, err error) {
	defer func() {
		if r := recover(); r != nil { // what the library did not think of
			s, err = nil, fmt.Errorf("toolschema: compiling panicked: %v", r)
		}
	}()
	// Keys may differ in case only: they are names of arguments.
	err = strictjson.Check(raw, strictjson.Options{MaxBytes: MaxBytes, MaxDepth: MaxDepth, AllowCaseVariants: true})
	if err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	if object, ok := doc.(map[string]any); !ok || object["type"] != "object" {
		return nil, errors.New(`toolschema: the schema is not of "type": "object"`)
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
	if refersToItself(compiled.Validate(map[string]any{})) {
		return nil, errors.New("toolschema: the schema refers to itself without end")
	}
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return nil, fmt.Errorf("toolschema: %w", err)
	}
	return &Schema{compiled, text.Bytes()}, nil
}

// JSON is the schema as its server gave it, without white space between tokens.
// The caller must not change it.
func (s *Schema) JSON() json.RawMessage { return s.text }

// nowhere loads nothing: what is not in the schema itself does not exist. The
// meta-schemas of the drafts are part of the library.
type nowhere struct{}

func (nowhere) Load(string) (any, error) {
	return nil, errors.New("references out of the schema are not followed")
}

func refersToItself(err error) bool {
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	return ok && anyCause(ve, func(e *jsonschema.ValidationError) bool {
		_, cycle := e.ErrorKind.(*kind.RefCycle)
		return cycle
	})
}

func anyCause(e *jsonschema.ValidationError, is func(*jsonschema.ValidationError) bool) bool {
	if is(e) {
		return true
	}
	for _, c := range e.Causes {
		if anyCause(c, is) {
			return true
		}
	}
	return false
}
