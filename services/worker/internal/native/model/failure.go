package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

const op = "native.model"

// statusOverloaded is what Anthropic answers when it has too much to do.
const statusOverloaded = 529

// FailureError is why a model gave no answer. Its cause is a *fault.Error.
type FailureError struct {
	Fault *fault.Error
	// Throttled says that the same request may be answered a while later.
	Throttled bool
	// TooLong says that the conversation does not fit the model's context.
	TooLong bool
}

// Error is for logs.
func (e *FailureError) Error() string { return e.Fault.Error() }

// Unwrap gives the fault.
func (e *FailureError) Unwrap() error { return e.Fault }

// Refused is the failure of a call that was answered with a status of 400 or
// more: the proxy's own code, where it has said one, else by status. The body
// goes nowhere.
func Refused(status int, h http.Header, body []byte) error {
	r := reportOf(body)
	throttled := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == statusOverloaded
	code := fault.Code(r.Code)
	switch {
	case code == fault.Cancelled: // the proxy was stopped; the run was not
		code = fault.ModelUnavailable
	case code.Known():
	case status == http.StatusTooManyRequests:
		code = fault.RateLimited
	case status >= http.StatusInternalServerError:
		code = fault.ModelUnavailable
	default:
		code = fault.ModelFailed
	}
	cause := fmt.Errorf("model call was answered with status %d", status)
	if event.ValidID(r.Incident) { // leads from the worker's log to the proxy's
		cause = fmt.Errorf("%w, incident %s", cause, r.Incident)
	}
	return &FailureError{
		Fault:     fault.Wrap(cause, code, op, fault.RetryAfter(retryAfter(h))),
		Throttled: throttled && code.Retryable() && !r.exhausted(),
		TooLong:   status == http.StatusRequestEntityTooLarge || status == http.StatusBadRequest && r.tooLong(),
	}
}

// Reported is the failure of a stream that has an error in it.
func Reported(body []byte) error {
	r := reportOf(body)
	code := fault.ModelFailed
	switch {
	case r.is("rate_limit_exceeded", "rate_limit_error"):
		code = fault.RateLimited
	case r.is("overloaded_error", "server_overloaded"):
		code = fault.ModelUnavailable
	}
	return &FailureError{
		Fault:     fault.Wrap(errors.New("the model's stream has an error in it"), code, op),
		Throttled: code != fault.ModelFailed,
		TooLong:   r.tooLong(),
	}
}

// Broken is the failure of anything else: of the connection, or of what came over
// it. What fails before an answer began may be asked again by whoever started the
// run. The end of ctx and a fault of the transport stay what they are.
func Broken(ctx context.Context, err error, began bool) error {
	var known *fault.Error
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), op)
	case errors.As(err, &known):
		return err
	case began:
		return &FailureError{Fault: fault.Wrap(errors.New("the model's stream is broken"), fault.ModelFailed, op)}
	default:
		return &FailureError{Fault: fault.Wrap(err, fault.ModelUnavailable, op)}
	}
}

// Cut is the failure of a stream that ended without its terminal.
func Cut(ctx context.Context) error {
	return Broken(ctx, errors.New("the model's stream ended without its terminal"), true)
}

// report is what the error bodies of all wires and of the proxy have in common.
type report struct {
	Code     text   `json:"code"`
	Type     text   `json:"type"`
	Message  text   `json:"message"`
	Incident string `json:"incident_id"`
}

// text is a string, or nothing: a provider may put a number there.
type text string

// UnmarshalJSON takes any value.
func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
	}
	return nil
}

// reportOf reads an error object, bare or in its envelope.
func reportOf(body []byte) report {
	var outer struct {
		Error *report `json:"error"`
	}
	if json.Unmarshal(body, &outer) == nil && outer.Error != nil {
		return *outer.Error
	}
	var bare report
	if json.Unmarshal(body, &bare) != nil {
		return report{}
	}
	return bare
}

func (r report) is(words ...string) bool {
	return slices.Contains(words, string(r.Code)) || slices.Contains(words, string(r.Type))
}

// exhausted tells a quota that waiting does not fill again.
func (r report) exhausted() bool { return r.is("insufficient_quota", "billing_error") }

// tooLong knows the words of the providers; Anthropic has no code for it.
func (r report) tooLong() bool {
	if r.is("context_length_exceeded", "model_context_window_exceeded") {
		return true
	}
	message := strings.ToLower(string(r.Message))
	return slices.ContainsFunc([]string{"prompt is too long", "maximum context length", "context window"}, func(s string) bool {
		return strings.Contains(message, s)
	})
}

// maxRetryAfter is the longest that is believed.
const maxRetryAfter = time.Hour

// retryAfter reads both forms of the header.
func retryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(n, 0), int(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(time.Until(at), 0), maxRetryAfter)
}
