// Package fault has the one error type that crosses Cofferdam's boundaries, and
// its mapping to Connect and HTTP, both ways.
//
// A safe error is a code of the Harness Adapter v1 contract with a fixed
// sentence. What an operator needs to know stands in the log under the
// incident id; the cause of an error never leaves the process.
package fault

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"
)

// Error is a safe error. Its exported parts may cross a boundary; its cause and
// operation may not.
type Error struct {
	code       Code
	op         string
	detail     string
	incident   string
	retryAfter time.Duration
	effects    string
	cause      error
}

// Option adds to an Error what its code does not say.
type Option func(*Error)

// maxDetail is how many bytes of a detail are kept.
const maxDetail = 1024

// Detail says what was wrong in the caller's own terms: a field path and a
// rule, never a value. At most 1,024 bytes of it are kept, as valid UTF-8: what
// is not would keep the whole error from being packed for the wire.
func Detail(detail string) Option {
	return func(e *Error) {
		d := strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], "\uFFFD")
		if len(d) > maxDetail { // a replaced byte takes three
			d = strings.ToValidUTF8(d[:maxDetail], "")
		}
		e.detail = d
	}
}

// RetryAfter says how long to wait; it is rounded up to whole seconds.
func RetryAfter(d time.Duration) Option { return func(e *Error) { e.retryAfter = d } }

// SideEffects sets the side-effect status: "none", "possible" or "known".
func SideEffects(status string) Option { return func(e *Error) { e.effects = status } }

// New makes an Error of a code. op names the operation for the log, such as
// "toolbroker.CallTool"; it never crosses the wire.
func New(code Code, op string, opts ...Option) *Error { return Wrap(nil, code, op, opts...) }

// Wrap makes an Error of a code with a cause that stays in this process.
func Wrap(cause error, code Code, op string, opts ...Option) *Error {
	if !code.Known() {
		code = Internal
	}
	e := &Error{code: code, op: op, cause: cause, incident: newIncident()}
	for _, o := range opts {
		o(e)
	}
	return e
}

// From makes any error an Error: one that is one already stays what it is, a
// context's end becomes cancelled or deadline_exceeded, and everything else is
// internal. It returns nil for nil.
func From(err error, op string) *Error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return Wrap(err, Cancelled, op)
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(err, DeadlineExceeded, op)
	default:
		return Wrap(err, Internal, op)
	}
}

// CodeOf is the code of err, Internal if it is no Error and "" for nil.
func CodeOf(err error) Code {
	if e := From(err, ""); e != nil {
		return e.code
	}
	return ""
}

// Is reports whether err is an Error of the code.
func Is(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.code == code
}

// Error is for logs: code, operation, detail and cause. It must not be sent to
// a caller; Safe is what may be.
func (e *Error) Error() string {
	s := string(e.code)
	if e.op != "" {
		s = e.op + ": " + s
	}
	if e.detail != "" {
		s += " (" + e.detail + ")"
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap gives the cause to errors.Is and errors.As inside the process.
func (e *Error) Unwrap() error { return e.cause }

// Code of the error.
func (e *Error) Code() Code { return e.code }

// Op is the operation that failed, for the log.
func (e *Error) Op() string { return e.op }

// Detail is the safe detail, or "".
func (e *Error) Detail() string { return e.detail }

// Incident correlates what a caller saw with the log.
func (e *Error) Incident() string { return e.incident }

// RetryAfter is how long to wait, or 0 when that is unknown.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// SideEffects is "none", "possible", "known" or "".
func (e *Error) SideEffects() string { return e.effects }

func newIncident() string { return "inc_" + rand.Text() }
