package event

import (
	"errors"
)

var errConstant = errors.New("event: the field has one possible value")

// Assistant is the only role of a text. It takes no space and stands as
// "assistant" in JSON.
type Assistant struct{}

// String is "assistant".
func (Assistant) String() string { return "assistant" }

// MarshalJSON gives "assistant".
func (a Assistant) MarshalJSON() ([]byte, error) { return constant(a.String()), nil }

// UnmarshalJSON takes "assistant" and nothing else.
func (a Assistant) UnmarshalJSON(text []byte) error { return only(a.String(), text) }

// Success is the only outcome of run.finished: other ends have types of their
// own. It takes no space and stands as "success" in JSON.
type Success struct{}

// String is "success".
func (Success) String() string { return "success" }

// MarshalJSON gives "success".
func (s Success) MarshalJSON() ([]byte, error) { return constant(s.String()), nil }

// UnmarshalJSON takes "success" and nothing else.
func (s Success) UnmarshalJSON(text []byte) error { return only(s.String(), text) }

func constant(word string) []byte { return []byte(`"` + word + `"`) }

func only(word string, text []byte) error {
	if string(text) != `"`+word+`"` {
		return errConstant
	}
	return nil
}
