package event

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Object is the JSON text of one object. Text keeps numbers and the order of
// keys as they came. The zero value is no object: it stands for one that is
// absent.
type Object string

// EmptyObject is the object without keys.
const EmptyObject Object = "{}"

// MarshalJSON gives the text; an absent object is an error.
func (o Object) MarshalJSON() ([]byte, error) { return []byte(o), nil }

// UnmarshalJSON keeps the text without its insignificant space. null leaves the
// object absent.
func (o *Object) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*o = ""
		return nil
	}
	kept, err := compact(text)
	*o = Object(kept)
	return err
}

// empty reports whether the object has no keys.
func (o Object) empty() bool {
	inner, opens := strings.CutPrefix(strings.TrimSpace(string(o)), "{")
	inner, closes := strings.CutSuffix(inner, "}")
	return opens && closes && strings.TrimSpace(inner) == ""
}

// Value is the JSON text of any value. The zero value stands for one that is
// absent.
type Value string

// MarshalJSON gives the text; an absent value is an error.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(v), nil }

// UnmarshalJSON keeps the text without its insignificant space.
func (v *Value) UnmarshalJSON(text []byte) error {
	kept, err := compact(text)
	*v = Value(kept)
	return err
}

func compact(text []byte) (string, error) {
	var b bytes.Buffer
	b.Grow(len(text))
	if err := json.Compact(&b, text); err != nil {
		return "", err
	}
	return b.String(), nil
}
