package telemetry

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type recorder struct {
	spans []sdktrace.ReadOnlySpan
	err   error
}

func (r *recorder) ExportSpans(_ context.Context, s []sdktrace.ReadOnlySpan) error {
	r.spans = append(r.spans, s...)
	return r.err
}
func (r *recorder) Shutdown(context.Context) error { return nil }

func setUp(t *testing.T, rec *recorder) *Telemetry {
	t.Helper()
	tel, err := New(t.Context(), Config{Service: "test", Exporter: rec})
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// Trace attributes carried a command line with secrets (agent-sandbox 895).
func TestNothingButAllowedAttributesLeaves(t *testing.T) {
	const canary = "canary-4f1c"
	rec := &recorder{}
	tel := setUp(t, rec)
	_, span := tel.Tracer.Start(t.Context(), "tool.invoke", trace.WithAttributes(
		attribute.String("cofferdam.operation", "call"),
		attribute.String("cofferdam.arguments", canary),
		attribute.String("process.command_args", canary),
		attribute.String("url.full", canary)))
	span.AddEvent("exception", trace.WithAttributes(attribute.String("exception.message", canary)))
	span.SetStatus(codes.Error, canary)
	span.AddLink(trace.Link{SpanContext: span.SpanContext(), Attributes: []attribute.KeyValue{attribute.String("x", canary)}})
	span.End()
	if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(rec.spans) != 1 {
		t.Fatalf("exported %d spans, want 1", len(rec.spans))
	}
	s := rec.spans[0]
	if got := s.Attributes(); len(got) != 1 || got[0].Key != "cofferdam.operation" {
		t.Errorf("attributes = %v, want only cofferdam.operation", got)
	}
	if d := s.Status().Description; d != "" || s.Status().Code != codes.Error {
		t.Errorf("status = %v %q, want the code alone", s.Status().Code, d)
	}
	for _, e := range s.Events() {
		if len(e.Attributes) != 0 {
			t.Errorf("event attributes = %v, want none", e.Attributes)
		}
	}
	for _, l := range s.Links() {
		if len(l.Attributes) != 0 {
			t.Errorf("link attributes = %v, want none", l.Attributes)
		}
	}
}

func TestCollectorOutageIsCountedAndHarmless(t *testing.T) {
	rec := &recorder{err: errors.New("collector away")}
	tel := setUp(t, rec)
	_, span := tel.Tracer.Start(t.Context(), "x")
	span.End()
	if err := tel.TracerProvider.(*sdktrace.TracerProvider).ForceFlush(t.Context()); err != nil { //nolint:forcetypeassert // New made it
		t.Errorf("an outage must not surface: %v", err)
	}
	w := httptest.NewRecorder()
	tel.Metrics.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), "cofferdam_telemetry_dropped_spans") {
		t.Errorf("metrics do not count the dropped span:\n%s", w.Body)
	}
	if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestBaggageIsNotPropagated(t *testing.T) {
	tel := setUp(t, &recorder{})
	defer func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) }()
	for _, f := range tel.Propagator.Fields() {
		if f == "baggage" {
			t.Error("baggage is propagated")
		}
	}
}

// A part that exports nothing, such as a worker, is in the middle of a trace: what is
// behind it belongs to the same trace, and is exported as far as its beginning said.
func TestATraceGoesThroughWhoExportsNothing(t *testing.T) {
	tel, err := New(t.Context(), Config{Service: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", ""} {
		ctx := tel.Propagator.Extract(t.Context(), propagation.MapCarrier{"traceparent": sent})
		ctx, span := tel.Tracer.Start(ctx, "a call")
		passed := propagation.MapCarrier{}
		tel.Propagator.Inject(ctx, passed)
		span.End()
		if passed["traceparent"] != sent {
			t.Errorf("%q went on as %q", sent, passed["traceparent"])
		}
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
