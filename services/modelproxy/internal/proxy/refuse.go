package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"

	"cofferdam.dev/pkg/fault"
)

// FaultHeader carries the code of a failure, whatever the wire calls it: as a
// header of an answer that is none, and as a trailer of a stream that ends in a
// failure.
const FaultHeader = "Cofferdam-Fault"

// safeError is a safe error with what the clients of a wire read of one.
type safeError struct {
	fault.Safe

	Type string `json:"type"`
}

type openAIError struct {
	Error struct {
		safeError

		Param *string `json:"param"`
	} `json:"error"`
}

type messagesError struct {
	Type  string    `json:"type"`
	Error safeError `json:"error"`
}

type geminiError struct {
	Error struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Status  string         `json:"status"`
		Details []geminiDetail `json:"details"`
	} `json:"error"`
}

// geminiDetail is google.rpc.ErrorInfo.
type geminiDetail struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata"`
}

// errorBody is a safe error in the shape that the clients of the wire read.
func (w Wire) errorBody(safe fault.Safe, status int) any {
	switch w {
	case AnthropicMessages:
		return messagesError{Type: "error", Error: safeError{Safe: safe, Type: anthropicType(status)}}
	case Gemini:
		var e geminiError
		e.Error.Code, e.Error.Message, e.Error.Status = status, safe.Message, googleStatus(status)
		about := map[string]string{"incident_id": safe.IncidentID}
		if safe.Detail != "" {
			about["detail"] = safe.Detail
		}
		e.Error.Details = []geminiDetail{{
			Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: string(safe.Code), Domain: "cofferdam.dev", Metadata: about,
		}}
		return e
	default:
		var e openAIError
		e.Error.safeError = safeError{Safe: safe, Type: string(safe.Category)}
		return e
	}
}

func anthropicType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "api_error"
	default:
		return "invalid_request_error"
	}
}

func googleStatus(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case status == http.StatusForbidden:
		return "PERMISSION_DENIED"
	case status == http.StatusNotFound:
		return "NOT_FOUND"
	case status == http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case status == http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	case status == http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	case status >= http.StatusInternalServerError:
		return "INTERNAL"
	default:
		return "INVALID_ARGUMENT"
	}
}

// isFinal tells the failures of an endpoint, which agents would have again for
// as long as they repeat the call.
func isFinal(code fault.Code) bool {
	return code == fault.ModelFailed || code == fault.ModelUnavailable || code == fault.DeadlineExceeded
}

// writeFault answers a call that failed before its answer began.
func writeFault(w http.ResponseWriter, e *fault.Error, wire Wire, noRetry bool) {
	safe, status := e.Safe(), e.Code().HTTPStatus()
	again := safe.Retryable
	if noRetry && isFinal(safe.Code) {
		status, again = http.StatusBadRequest, false
	}
	body, err := json.Marshal(wire.errorBody(safe, status))
	if err != nil { // strings and numbers always marshal
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(FaultHeader, string(safe.Code))
	// The clients of OpenAI and Anthropic retry every 5xx unless they are told.
	h.Set("X-Should-Retry", strconv.FormatBool(again))
	if safe.RetryAfterSeconds != nil {
		h.Set("Retry-After", strconv.Itoa(*safe.RetryAfterSeconds))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller that has gone needs no answer
}
