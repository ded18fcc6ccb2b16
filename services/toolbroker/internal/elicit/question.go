package elicit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/pkg/toolschema"
)

// Bounds of a question.
const (
	// MaxBytes of its parameters, as they came.
	MaxBytes = 32 << 10
	maxDepth = 12
)

// Types of fields, as every form of this system has them.
const (
	typeText        = "text"
	typeNumber      = "number"
	typeBoolean     = "boolean"
	typeSelect      = "select"
	typeMultiselect = "multiselect"
)

// confirm is the field of a question that has none: whoever submits the form has
// to say yes to something.
const confirm = "confirm"

// Question is what a server asks.
type Question struct {
	// Prompt and Fields are the form, cleaned and within the bounds of an event.
	Prompt string
	Fields []event.FormField

	properties []property
	schema     *toolschema.Schema
}

// property of the requested schema.
type property struct {
	name string
	kind string // of JSON Schema
	// fallback is the default; nil without one.
	fallback json.RawMessage
}

var strict = strictjson.Options{MaxBytes: MaxBytes, MaxDepth: maxDepth, AllowCaseVariants: true}

// Parse reads the parameters of elicitation/create. clean cuts from text what a
// person must not see. Errors quote nothing that the server sent.
func Parse(params json.RawMessage, clean func(string) string) (Question, error) {
	var fields map[string]json.RawMessage
	if err := strictjson.Unmarshal(params, &fields, strict); err != nil {
		return Question{}, errors.New("elicit: not acceptable as JSON")
	}
	var asked struct{ message, mode string }
	if json.Unmarshal(fields["message"], &asked.message) != nil || fields["mode"] != nil && json.Unmarshal(fields["mode"], &asked.mode) != nil {
		return Question{}, errors.New("elicit: a question without a message")
	}
	if asked.mode != "" && asked.mode != "form" {
		return Question{}, errors.New("elicit: only questions by form are offered")
	}
	text := func(s string, most int) string { return event.Truncate(event.SanitizeText(clean(s)), most) }
	q := Question{Prompt: text(asked.message, event.MaxPromptBytes)}
	if q.Prompt == "" {
		q.Prompt = "The tool asks for input."
	}
	schema := fields["requestedSchema"]
	if schema == nil {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	var err error
	if q.schema, err = toolschema.Compile(schema); err != nil {
		return Question{}, errors.New("elicit: not a schema")
	}
	if err := q.form(schema, text); err != nil {
		return Question{}, err
	}
	probe := event.InterruptRequested{InterruptID: "probe", InterruptType: event.InterruptFormInput, AgentID: "probe", Prompt: q.Prompt, Fields: q.Fields}
	body, err := event.InterruptBody(probe)
	if err == nil {
		_, err = event.DecodeInterrupt(body, event.Bounds{})
	}
	if err != nil {
		return Question{}, errors.New("elicit: more than a form may hold")
	}
	return q, nil
}

// spec is what the protocol allows of the schema of one property.
type spec struct {
	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Format      string          `json:"format"`
	Default     json.RawMessage `json:"default"`
	choices
	Items *choices `json:"items"`
}

// choices are what can be chosen from, in each way that the protocol has had.
type choices struct {
	Enum      []string `json:"enum"`
	EnumNames []string `json:"enumNames"`
	OneOf     []choice `json:"oneOf"`
	AnyOf     []choice `json:"anyOf"`
}

type choice struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// all are the values, with the names that they have besides.
func (c choices) all() (values, names []string) {
	for _, o := range slices.Concat(c.OneOf, c.AnyOf) {
		values, names = append(values, o.Const), append(names, o.Title)
	}
	if len(values) == 0 {
		values, names = c.Enum, c.EnumNames
	}
	return values, names
}

// form makes the fields, in the order in which the schema has them.
func (q *Question) form(schema json.RawMessage, text func(string, int) string) error {
	var object struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal(schema, &object) != nil {
		return errors.New("elicit: not a schema of the protocol")
	}
	names, specs, err := members(object.Properties)
	if err != nil {
		return err
	}
	for i, name := range names {
		s := specs[i]
		f := event.FormField{
			FieldName: name, FieldLabel: text(s.Title, event.MaxNameBytes), Required: slices.Contains(object.Required, name),
		}
		described, values, titles := s.Description, []string(nil), []string(nil)
		switch {
		case s.Type == "string":
			f.FieldType = typeText
			if values, titles = s.all(); len(values) > 0 {
				f.FieldType = typeSelect
			}
			f.Placeholder = text(s.Format, event.MaxNameBytes)
		case s.Type == "number", s.Type == "integer":
			f.FieldType = typeNumber
		case s.Type == "boolean":
			f.FieldType = typeBoolean
		case s.Type == "array" && s.Items != nil:
			f.FieldType = typeMultiselect
			if values, titles = s.Items.all(); len(values) == 0 {
				return errors.New("elicit: a list of what nobody can choose")
			}
		default:
			return errors.New("elicit: a property of a type that no form has")
		}
		f.FieldValues = values
		described = strings.TrimSpace(described + " " + named(values, titles))
		f.FieldDescription = text(described, event.MaxMessageBytes)
		if s.Default != nil && q.suits(name, s.Default) {
			f.DefaultValue = event.Value(s.Default)
			q.properties = append(q.properties, property{name, s.Type, s.Default})
		} else {
			q.properties = append(q.properties, property{name, s.Type, nil})
		}
		q.Fields = append(q.Fields, f)
	}
	if len(q.Fields) == 0 {
		q.Fields = []event.FormField{{FieldName: confirm, FieldType: typeBoolean, Required: true}}
	}
	return nil
}

// suits says whether a value of one property is what the schema takes there.
func (q *Question) suits(name string, value json.RawMessage) bool {
	alone, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		return false
	}
	err = q.schema.CheckText(alone)
	// That the others are missing is no fault of this one.
	wrong, ok := errors.AsType[*toolschema.ArgumentError](err)
	return err == nil || ok && strings.HasPrefix(wrong.Rule, "required")
}

// named tells which names the values have, where they have any.
func named(values, names []string) string {
	var out []string
	for i, v := range values {
		if i < len(names) && names[i] != "" && names[i] != v {
			out = append(out, v+": "+names[i])
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "(" + strings.Join(out, "; ") + ")"
}

// members are the properties of a schema, in their order.
func members(properties json.RawMessage) (names []string, specs []spec, err error) {
	if len(properties) == 0 {
		return nil, nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(properties))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("elicit: properties are an object")
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, nil, errors.New("elicit: properties are an object")
		}
		var s spec
		if err := d.Decode(&s); err != nil {
			return nil, nil, errors.New("elicit: a property in no form of the protocol")
		}
		names, specs = append(names, name), append(specs, s)
	}
	return names, specs, nil
}

// Digest tells a question from another one, however it is written.
func Digest(params json.RawMessage) string {
	var q struct {
		Message         json.RawMessage `json:"message"`
		RequestedSchema json.RawMessage `json:"requestedSchema"`
	}
	if json.Unmarshal(params, &q) != nil {
		return ""
	}
	whole, err := json.Marshal(q)
	if err == nil {
		whole, err = strictjson.Canonical(whole, strict)
	}
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(whole)
	return hex.EncodeToString(sum[:])
}

// InvalidError says why an answer is not what was asked for. It names a place and a
// rule, and no value.
type InvalidError struct{ Reason string }

// Error is the reason.
func (e *InvalidError) Error() string { return "elicit: " + e.Reason }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }
