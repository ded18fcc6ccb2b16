package event

import (
	"errors"
	"fmt"
)

// ErrEmptyDelta is what a delta of nothing gets: it is to be dropped before it
// is given a sequence. The machine stays as it was and goes on. A peer that
// numbered such a delta shows a gap with its next event, which is a violation.
var ErrEmptyDelta = errors.New("event: empty delta")

// ViolationError is a breach of the lifecycle or of a bound. Callers answer it
// with the code "protocol". It has no text from the event.
type ViolationError struct {
	// Rule is 1 to 11 as in the contract, "The lifecycle machine"; 0 for the
	// shape or a bound of an event.
	Rule int
	// Sequence of the event, as it claims.
	Sequence uint64
	// Field is the path of the field at fault, such as data.message_id; may be
	// empty.
	Field string
	// Reason is a fixed sentence.
	Reason string

	cause error
}

// Error names rule, sequence, field and reason.
func (e *ViolationError) Error() string {
	at := ""
	if e.Field != "" {
		at = " (" + e.Field + ")"
	}
	if e.Rule == 0 {
		return fmt.Sprintf("event: sequence %d%s: %s", e.Sequence, at, e.Reason)
	}
	return fmt.Sprintf("event: sequence %d%s breaks rule %d: %s", e.Sequence, at, e.Rule, e.Reason)
}

// Unwrap gives what refused the JSON text, where there is any: a
// *strictjson.Error, whose path has keys of the sender.
func (e *ViolationError) Unwrap() error { return e.cause }
