package runnerproto

import "errors"

// Code is a code of the Harness Adapter v1 contract: those that a runner gives.
// The runner does not link package fault, which knows them all; a test of the
// client compares.
type Code string

// The codes.
const (
	Invalid      Code = "invalid_request"
	Options      Code = "harness_options_invalid"
	TooLarge     Code = "state_too_large"
	BrokenOrder  Code = "protocol"
	Denied       Code = "access_denied"
	Running      Code = "already_running"
	Limit        Code = "sandbox_limit"
	NotReady     Code = "sandbox_not_ready"
	Capacity     Code = "capacity"
	Persistence  Code = "persistence_failed"
	Cancelled    Code = "cancelled"
	DeadlinePast Code = "deadline_exceeded"
	Internal     Code = "internal"
)

// Codes lists them.
func Codes() []Code {
	return []Code{
		Invalid, Options, TooLarge, BrokenOrder, Denied, Running, Limit, NotReady, Capacity, Persistence, Cancelled, DeadlinePast, Internal,
	}
}

// Error is why a call failed.
type Error struct {
	Code Code `json:"code"`
	// Detail is a fixed sentence of the runner or a name that the worker gave, and
	// never anything of the program.
	Detail string `json:"detail,omitempty"`
	cause  error
}

// Fail makes an Error. The cause, which may be nil, stays in the runner's log.
func Fail(cause error, code Code, detail string) *Error {
	return &Error{Code: code, Detail: detail, cause: cause}
}

// Error is for the log.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// From makes any error an Error; one that is none is internal, without a word of
// it.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Fail(err, Internal, "")
}
