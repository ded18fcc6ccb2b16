package fault

import (
	"errors"
	"math"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"

	faultv1 "cofferdam.dev/pkg/gen/harness/fault/v1"
)

// rpcCode keeps the table of codes readable.
type rpcCode = connect.Code

const (
	codeInvalidArgument    = connect.CodeInvalidArgument
	codeFailedPrecondition = connect.CodeFailedPrecondition
	codeUnauthenticated    = connect.CodeUnauthenticated
	codePermissionDenied   = connect.CodePermissionDenied
	codeAborted            = connect.CodeAborted
	codeNotFound           = connect.CodeNotFound
	codeResourceExhausted  = connect.CodeResourceExhausted
	codeUnavailable        = connect.CodeUnavailable
	codeDeadlineExceeded   = connect.CodeDeadlineExceeded
	codeInternal           = connect.CodeInternal
	codeCanceled           = connect.CodeCanceled
	codeUnimplemented      = connect.CodeUnimplemented
)

// ToConnect makes the error that a Connect handler returns. Only this function
// makes one: the wire gets code, fixed sentence and ErrorDetail, never a cause.
func ToConnect(err error) *connect.Error {
	e := From(err, "rpc")
	if e == nil {
		e = New(Internal, "rpc")
	}
	safe := e.Safe()
	d := &faultv1.ErrorDetail{
		Code:             string(safe.Code),
		Category:         string(safe.Category),
		Message:          safe.Message,
		Retryable:        safe.Retryable,
		SideEffectStatus: safe.SideEffectStatus,
		IncidentId:       safe.IncidentID,
		Detail:           safe.Detail,
	}
	if s := safe.RetryAfterSeconds; s != nil {
		n := uint32(min(*s, math.MaxInt32)) //nolint:gosec // bounded above, and seconds never are negative
		d.RetryAfterSeconds = &n
	}
	out := connect.NewError(e.code.property().connect, safe.Message).WithCause(e)
	detail, derr := connectproto.NewErrorDetail(d)
	if derr != nil { // a message that cannot be packed must not hide the code
		return out
	}
	return out.WithDetail(detail)
}

// FromConnect restores the error that a Connect server made with ToConnect. An
// error without the detail becomes the nearest code of the contract. It
// returns nil for nil.
func FromConnect(err error, op string) *Error {
	var local *Error
	var ce *connect.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &ce):
		return From(err, op)
	case errors.As(ce.Unwrap(), &local):
		return local // made in this process, by ToConnect
	}
	for _, d := range ce.Details() {
		m, derr := connectproto.UnmarshalErrorDetail(d)
		detail, ok := m.(*faultv1.ErrorDetail)
		if derr != nil || !ok || !Code(detail.GetCode()).Known() {
			continue
		}
		return restoreDetail(detail, err, op)
	}
	return Wrap(err, nearest(ce.Code()), op)
}

func restoreDetail(d *faultv1.ErrorDetail, cause error, op string) *Error {
	s := Safe{
		Code:             Code(d.GetCode()),
		Detail:           d.GetDetail(),
		SideEffectStatus: d.GetSideEffectStatus(),
		IncidentID:       d.GetIncidentId(),
	}
	if d.RetryAfterSeconds != nil {
		n := int(d.GetRetryAfterSeconds())
		s.RetryAfterSeconds = &n
	}
	e := s.restore(op)
	e.cause = cause
	return e
}

// nearest maps what did not come from fault: a proxy, a gRPC library, a
// transport that broke.
func nearest(c connect.Code) Code {
	switch c {
	case connect.CodeCanceled:
		return Cancelled
	case connect.CodeDeadlineExceeded:
		return DeadlineExceeded
	case connect.CodeUnauthenticated:
		return Unauthenticated
	case connect.CodePermissionDenied:
		return AccessDenied
	case connect.CodeNotFound:
		return NotFound
	case connect.CodeUnimplemented:
		return NotImplemented
	case connect.CodeInvalidArgument, connect.CodeOutOfRange, connect.CodeFailedPrecondition:
		return InvalidRequest
	case connect.CodeResourceExhausted:
		return Capacity
	case connect.CodeUnavailable, connect.CodeUnknown:
		return DependencyUnavailable
	case connect.CodeAborted, connect.CodeAlreadyExists:
		return RevisionConflict
	case connect.CodeInternal, connect.CodeDataLoss:
		return Internal
	default:
		return Internal
	}
}
