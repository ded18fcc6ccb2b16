package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/fault"
)

// reasonError is the cause of a failure in a word that may be logged.
type reasonError string

// Error implements the error interface.
func (e reasonError) Error() string { return string(e) }

// What can be wrong with an upstream.
const (
	errIdle   reasonError = "upstream_silent"
	errLate   reasonError = "upstream_answers_too_late"
	errStatus reasonError = "upstream_status"
	// What the endpoints call a request that is longer than their model's context.
	errContextFull reasonError = "upstream_context_full"
	errRedirect    reasonError = "upstream_redirects"
	errMedia       reasonError = "upstream_content_type"
	errEncoded     reasonError = "upstream_content_encoding"
	errTooLarge    reasonError = "upstream_answer_too_large"
	errMalformed   reasonError = "upstream_answer_malformed"
	errInAnswer    reasonError = "upstream_error_in_answer"
	errCut         reasonError = "upstream_answer_cut"
	errNoFinish    reasonError = "upstream_answer_without_finish"
	errEcho        reasonError = "upstream_repeats_the_key"
	errKeyFile     reasonError = "key_file"
	errPanic       reasonError = "demo_model_panicked"
	errDial        reasonError = "upstream_dial"
	errName        reasonError = "upstream_name_resolution"
	errTLS         reasonError = "upstream_tls"
	errTransport   reasonError = "upstream_transport"
	errCaller      reasonError = "caller_does_not_read"
)

// failed is model_failed: the answer is no answer, and asking again is the
// caller's decision.
func failed(reason reasonError) error { return fault.Wrap(reason, fault.ModelFailed, "proxy") }

// unavailable is model_unavailable: asking again may help.
func unavailable(reason reasonError) error {
	return fault.Wrap(reason, fault.ModelUnavailable, "proxy")
}

// transportFailure classifies an error of the connection. The error itself is
// dropped: net/http quotes what a peer sent.
func transportFailure(ctx context.Context, err error, otherwise func(reasonError) error) error {
	cause := context.Cause(ctx)
	if reason, ok := errors.AsType[reasonError](cause); ok {
		return otherwise(reason)
	}
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return fault.Wrap(context.DeadlineExceeded, fault.DeadlineExceeded, "proxy")
	case cause != nil:
		return fault.Wrap(context.Canceled, fault.Cancelled, "proxy")
	default:
		return otherwise(classify(err))
	}
}

func classify(err error) reasonError {
	var (
		reason reasonError
		dns    *net.DNSError
		op     *net.OpError
		cert   *tls.CertificateVerificationError
		record tls.RecordHeaderError
		alert  tls.AlertError
	)
	switch {
	case errors.As(err, &reason):
		return reason
	case errors.As(err, &dns):
		return errName
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert):
		return errTLS
	case errors.As(err, &op) && op.Op == "dial":
		return errDial
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	default:
		return errTransport
	}
}

// reasonOf is the word for the log: what was wrong with the upstream, or which
// step refused the request. A fault's detail may name keys of the request.
func reasonOf(e *fault.Error) string {
	if reason, ok := errors.AsType[reasonError](e); ok {
		return string(reason)
	}
	return e.Op()
}

// statusFailure maps the status of an upstream that did not answer. Its body is
// not read.
func statusFailure(status int, h http.Header) error {
	switch {
	case status == http.StatusTooManyRequests:
		return fault.Wrap(errStatus, fault.RateLimited, "proxy", fault.RetryAfter(retryAfter(h)))
	case status == http.StatusRequestEntityTooLarge:
		return fault.Wrap(errStatus, fault.RequestTooLarge, "proxy")
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return fault.Wrap(errStatus, fault.ModelUnavailable, "proxy", fault.RetryAfter(retryAfter(h)))
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return failed(errRedirect)
	default:
		return failed(errStatus)
	}
}

// retryAfter reads Retry-After in both of its forms; anything beyond an hour is
// taken for an hour, and anything else for nothing.
func retryAfter(h http.Header) time.Duration {
	const longest = time.Hour
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.Atoi(value); err == nil {
		return min(time.Duration(max(seconds, 0))*time.Second, longest)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(time.Until(at), 0), longest)
}

// writeFailure is the error of writing to the caller.
func writeFailure(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.Wrap(errCaller, fault.Cancelled, "proxy")
	}
	return fault.Wrap(context.Canceled, fault.Cancelled, "proxy")
}
