package toolschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"cofferdam.dev/pkg/event"
)

// maxExponent bounds the exponent of a number. Exact arithmetic with 1e-999999 is
// a way to keep a processor busy.
const maxExponent = 400

// Bounds of what an error tells, in bytes.
const (
	maxSegment = 64
	maxPlace   = 400
)

// ArgumentError says where arguments do not fit and which rule they break. It
// names no value.
type ArgumentError struct {
	// Place is a JSON pointer below "arguments".
	Place string
	// Rule is a keyword of JSON Schema, or what stands for one.
	Rule string
}

// Error is the place and the rule.
func (e *ArgumentError) Error() string { return e.Place + ": " + e.Rule }

// Check checks arguments, whose numbers are json.Number. Every error is an
// *ArgumentError; of several, always the same one for the same arguments.
func (s *Schema) Check(arguments map[string]any) error {
	if all := s.Violations(arguments); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Violations are all errors that Check would choose from, in a fixed order.
func (s *Schema) Violations(arguments map[string]any) (all []*ArgumentError) {
	defer func() {
		if r := recover(); r != nil {
			all = []*ArgumentError{{Place: place(nil), Rule: "cannot be checked"}}
		}
	}()
	if at := hugeNumber(arguments, nil); at != nil {
		return []*ArgumentError{{Place: place(at), Rule: "number out of range"}}
	}
	verr := s.compiled.Validate(arguments)
	if verr == nil {
		return nil
	}
	ve, ok := errors.AsType[*jsonschema.ValidationError](verr)
	if !ok {
		return []*ArgumentError{{Place: place(nil), Rule: "cannot be checked"}}
	}
	all = leaves(ve, nil)
	slices.SortFunc(all, func(a, b *ArgumentError) int { return strings.Compare(a.Error(), b.Error()) })
	return all
}

// leaves are the errors that have no further cause.
func leaves(e *jsonschema.ValidationError, into []*ArgumentError) []*ArgumentError {
	if len(e.Causes) == 0 {
		return append(into, &ArgumentError{Place: place(e.InstanceLocation), Rule: rule(e.ErrorKind)})
	}
	for _, c := range e.Causes {
		into = leaves(c, into)
	}
	return into
}

// rule names the keyword, and of a missing argument its name, which stands in
// the schema.
func rule(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Required:
		return "required: " + clip(strings.Join(k.Missing, ", "), maxPlace)
	case *kind.AdditionalProperties:
		return "additionalProperties: " + clip(strings.Join(slices.Sorted(slices.Values(k.Properties)), ", "), maxPlace)
	case *kind.Type:
		return "type: " + strings.Join(k.Want, " or ")
	}
	if path := k.KeywordPath(); len(path) > 0 {
		return clip(path[0], maxSegment)
	}
	return "not allowed"
}

func place(location []string) string {
	var b strings.Builder
	b.WriteString("arguments")
	for _, segment := range location {
		b.WriteByte('/')
		b.WriteString(clip(strings.NewReplacer("~", "~0", "/", "~1").Replace(segment), maxSegment))
	}
	return clip(b.String(), maxPlace)
}

// clip makes names that a caller chose fit for an error text.
func clip(s string, most int) string {
	return event.Truncate(strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, s), most)
}

// hugeNumber gives the place of a number whose exponent is out of bounds, or nil.
func hugeNumber(v any, at []string) []string {
	switch v := v.(type) {
	case json.Number:
		if i := strings.IndexAny(v.String(), "eE"); i >= 0 {
			if n, err := strconv.Atoi(strings.TrimPrefix(v.String()[i+1:], "+")); err != nil || n > maxExponent || n < -maxExponent {
				return append([]string{}, at...)
			}
		}
	case map[string]any:
		for k, member := range v {
			if found := hugeNumber(member, append(at, k)); found != nil {
				return found
			}
		}
	case []any:
		for i, element := range v {
			if found := hugeNumber(element, append(at, fmt.Sprint(i))); found != nil {
				return found
			}
		}
	}
	return nil
}
