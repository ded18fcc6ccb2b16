package event

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"cofferdam.dev/pkg/strictjson"
)

// Fixed sentences that more than one check uses.
const (
	notOneOf = "not one of the allowed values"
	notAnID  = "not an id of the contract"
	notText  = "invalid UTF-8 or a forbidden control character"
	tooLong  = "longer than allowed"
	tooMany  = "more than allowed"
	missing  = "required"
)

// checker finds the first thing that is wrong with one event.
type checker struct {
	bounds *Bounds
	at     string // what the names of fields are relative to
	err    *ViolationError
}

func (c *checker) fail(field, reason string) {
	if c.err == nil {
		c.err = &ViolationError{Field: c.at + field, Reason: reason}
	}
}

// ValidID reports whether s is an id of the contract: 1 to 128 characters of
// [A-Za-z0-9._:-].
func ValidID(s string) bool { return madeOf(s, MaxIDLength, "._:-") }

// madeOf reports whether s is 1 to most characters, each a letter, a digit or
// one of others.
func madeOf(s string, most int, others string) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(others, c) < 0:
			return false
		}
	}
	return true
}

func (c *checker) id(field, s string) {
	if !madeOf(s, c.bounds.IDLength, "._:-") {
		c.fail(field, notAnID)
	}
}

func (c *checker) optionalID(field, s string) {
	if s != "" {
		c.id(field, s)
	}
}

func (c *checker) toolID(field, s string) {
	if !madeOf(s, MaxToolIDLength, "._/-") {
		c.fail(field, "not a tool id")
	}
}

// harnessID is ^[a-z][a-z0-9_]{1,63}$.
func (c *checker) harnessID(field, s string) {
	if len(s) < 2 || !madeOf(s, 64, "_") || s != strings.ToLower(s) || s[0] < 'a' {
		c.fail(field, "not a harness id")
	}
}

// label is a short name that is not empty.
func (c *checker) label(field, s string) { c.text(field, s, MaxNameBytes) }

func (c *checker) text(field, s string, most int) {
	if s == "" {
		c.fail(field, missing)
		return
	}
	c.optionalText(field, s, most)
}

func (c *checker) optionalText(field, s string, most int) {
	switch {
	case len(s) > most:
		c.fail(field, tooLong)
	case !clean(s):
		c.fail(field, notText)
	}
}

func (c *checker) delta(s string) { c.optionalText("delta", s, c.bounds.DeltaBytes) }

// clean reports whether s is UTF-8 without C0 controls other than tab, CR and
// LF.
func clean(s string) bool {
	for i := range len(s) {
		if forbidden(rune(s[i])) {
			return false
		}
	}
	return utf8.ValidString(s)
}

func forbidden(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' }

func (c *checker) number(field string, n *uint64) {
	if n != nil && *n > MaxInteger {
		c.fail(field, "larger than every JSON reader keeps exact")
	}
}

func (c *checker) count(field string, n, most int) {
	switch {
	case n == 0:
		c.fail(field, missing)
	case n > most:
		c.fail(field, tooMany)
	}
}

func oneOf[T ~string](c *checker, field string, v T, allowed ...T) {
	if !slices.Contains(allowed, v) {
		c.fail(field, notOneOf)
	}
}

// json checks free-form JSON text that a decision hangs on.
func (c *checker) json(field, text string, most, depth int) {
	c.freeForm(field, text, strictjson.Options{MaxBytes: most, MaxDepth: depth})
}

func (c *checker) freeForm(field, text string, o strictjson.Options) {
	if c.err != nil {
		return
	}
	if err := strictjson.Check([]byte(text), o); err != nil {
		c.fail(field, "not acceptable as JSON")
		c.err.cause = err
	}
}

// arguments checks the arguments of a tool call, or those that are to be
// approved.
func (c *checker) arguments(field string, o Object) {
	c.json(field, string(o), c.bounds.ArgumentsBytes, c.bounds.ArgumentsDepth)
	c.object(field, o)
}

func (c *checker) object(field string, o Object) {
	if !strings.HasPrefix(strings.TrimLeft(string(o), " \t\r\n"), "{") {
		c.fail(field, "not a JSON object")
	}
}

// result checks what a tool gave. No decision hangs on it, so keys that differ
// only in case pass: the world outside may use them.
func (c *checker) result(v Value) {
	c.freeForm("result", string(v), strictjson.Options{
		MaxBytes: c.bounds.ResultBytes, MaxDepth: c.bounds.ArgumentsDepth, AllowCaseVariants: true,
	})
}

// flat checks an object of scalars. keys are those that it may have; nil allows
// any.
func (c *checker) flat(field string, o Object, keys []string) {
	c.json(field, string(o), c.bounds.DetailsBytes, 1)
	c.object(field, o)
	if c.err != nil {
		return
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(o), &members); err != nil {
		c.fail(field, "not a JSON object")
		return
	}
	if len(members) > c.bounds.DetailsKeys {
		c.fail(field, tooMany)
	}
	for key := range members {
		if keys != nil && !slices.Contains(keys, key) {
			c.fail(field, "a key that is not on the list")
		}
	}
}
