package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/fault"
)

// finish makes the error of a handler safe to send, and logs once what the
// caller is not told.
func finish(ctx context.Context, logger *slog.Logger, procedure string, err error) *fault.Error {
	if err == nil {
		return nil
	}
	e := fault.From(err, procedure)
	if e.Code() == fault.Cancelled && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		e = fault.Wrap(err, fault.DeadlineExceeded, procedure)
	}
	switch e.Code() {
	case fault.Internal, fault.DependencyUnavailable, fault.PersistenceFailed, fault.ThreadDurabilityUncertain, fault.ToolOutcomeUnknown:
		logger.ErrorContext(ctx, "request failed", "procedure", procedure, "incident_id", e.Incident(), "error", e.Error())
	default:
		logger.DebugContext(ctx, "request refused", "procedure", procedure, "incident_id", e.Incident(), "code", string(e.Code()))
	}
	return e
}

// recovering turns a panic of a handler into an error of that one request.
func recovering(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = panicked(r)
			}
		}()
		return next(ctx, spec, stream)
	}
}

func panicked(r any) error {
	return fault.Wrap(fmt.Errorf("panic: %v\n%s", r, debug.Stack()), fault.Internal, "rpc.recover")
}
