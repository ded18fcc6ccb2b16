package mongodbstore

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// monitor makes a span of each command: its name, how long it took and whether it
// failed; never its contents, nor the text of an error, which may repeat them.
func monitor(tracer trace.Tracer) *event.CommandMonitor {
	var open sync.Map // of the request's id
	end := func(id int64, failed bool) {
		v, ok := open.LoadAndDelete(id)
		if !ok {
			return
		}
		span, ok := v.(trace.Span)
		if !ok {
			return
		}
		if failed {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
	return &event.CommandMonitor{
		Started: func(ctx context.Context, e *event.CommandStartedEvent) {
			// The event that ends the command ends it.
			_, span := tracer.Start(ctx, "mongodb."+e.CommandName, trace.WithSpanKind(trace.SpanKindClient), //nolint:spancheck // see above
				trace.WithAttributes(attribute.String("cofferdam.operation", e.CommandName)))
			open.Store(e.RequestID, span)
		}, //nolint:spancheck // see above
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { end(e.RequestID, false) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { end(e.RequestID, true) },
	}
}
