package fault

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// Safe is the JSON form of an error as the contract defines it.
type Safe struct {
	Code              Code     `json:"code"`
	Category          Category `json:"category"`
	Message           string   `json:"message"`
	Detail            string   `json:"detail,omitempty"`
	Retryable         bool     `json:"retryable"`
	RetryAfterSeconds *int     `json:"retry_after_seconds,omitempty"`
	SideEffectStatus  string   `json:"side_effect_status,omitempty"`
	IncidentID        string   `json:"incident_id"`
}

// Safe is what a caller may see of the error.
func (e *Error) Safe() Safe {
	return Safe{
		Code:              e.code,
		Category:          e.code.Category(),
		Message:           e.code.Message(),
		Detail:            e.detail,
		Retryable:         e.code.Retryable(),
		RetryAfterSeconds: seconds(e.retryAfter),
		SideEffectStatus:  e.effects,
		IncidentID:        e.incident,
	}
}

// WriteHTTP answers a request with the error: its HTTP status, Retry-After
// where it is known, and {"error": {…}}.
func WriteHTTP(w http.ResponseWriter, err error) {
	e := From(err, "http")
	if e == nil {
		e = New(Internal, "http")
	}
	safe := e.Safe()
	body, merr := json.Marshal(struct {
		Error Safe `json:"error"`
	}{safe})
	if merr != nil { // a struct of strings always marshals; keep the contract's shape all the same
		body = []byte(`{"error":{"code":"internal","category":"internal"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if safe.RetryAfterSeconds != nil {
		h.Set("Retry-After", strconv.Itoa(*safe.RetryAfterSeconds))
	}
	w.WriteHeader(e.code.HTTPStatus())
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no answer
}

// ReadHTTP restores the error from the body of an HTTP answer that WriteHTTP
// wrote. ok is false when body is no such answer.
func ReadHTTP(body []byte) (e *Error, ok bool) {
	var doc struct {
		Error *Safe `json:"error"`
	}
	if json.Unmarshal(body, &doc) != nil || doc.Error == nil || !doc.Error.Code.Known() {
		return nil, false //nolint:nilerr // another body is an answer, not a failure
	}
	return doc.Error.restore("remote"), true
}

const (
	maxIncident   = 64
	maxRetryAfter = 24 * time.Hour
)

// restore makes the error that a peer described. What the peer says beyond the
// contract's bounds is dropped; category, message and retry flag are the code's.
func (s Safe) restore(op string) *Error {
	e := New(s.Code, op, Detail(s.Detail))
	switch s.SideEffectStatus {
	case "none", "possible", "known":
		e.effects = s.SideEffectStatus
	}
	if s.IncidentID != "" && len(s.IncidentID) <= maxIncident && utf8.ValidString(s.IncidentID) {
		e.incident = s.IncidentID
	}
	if n := s.RetryAfterSeconds; n != nil && *n > 0 {
		e.retryAfter = time.Duration(min(*n, int(maxRetryAfter/time.Second))) * time.Second
	}
	return e
}

func seconds(d time.Duration) *int {
	if d <= 0 {
		return nil
	}
	n := int((d + time.Second - 1) / time.Second)
	return &n
}
