package conformance

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/worker/internal/conformance/internal/rpc/brokers"
	"cofferdam.dev/services/worker/internal/harness"
)

// watched is what an operator sees of the workers of a fixture.
type watched struct {
	*bench

	end func() error

	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

// watch gives the fixture telemetry of its own, and its control plane a trace that
// its requests belong to.
func (b *bench) watch() *watched {
	b.Helper()
	w := &watched{bench: b}
	tel, err := telemetry.New(b.Context(), telemetry.Config{Service: "worker", Logger: slog.New(slog.DiscardHandler), Exporter: w})
	b.must(err)
	b.telemetry = tel
	w.end = sync.OnceValue(func() error { return tel.Shutdown(context.WithoutCancel(b.Context())) })
	b.Cleanup(func() { b.must(w.end()) })
	var cfg trace.SpanContextConfig
	_, _ = rand.Read(cfg.TraceID[:]) // it never fails
	_, _ = rand.Read(cfg.SpanID[:])
	cfg.TraceFlags = trace.FlagsSampled
	b.trace = trace.NewSpanContext(cfg)
	return w
}

// ExportSpans implements sdktrace.SpanExporter.
func (w *watched) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spans = append(w.spans, spans...)
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (*watched) Shutdown(context.Context) error { return nil }

// judge says what was seen of a run that loaded a head, called a tool and committed
// the next head: in the metrics, in the spans, and in what the brokers were told of
// the trace. All of it is done by the worker; what is missing is not there.
func (w *watched) judge() {
	b := w.bench
	b.Helper()
	for _, key := range []string{"observability.metrics", "observability.tracing", "observability.trace_propagation"} {
		b.only(key, harness.Emulated)
	}
	answer := httptest.NewRecorder()
	b.telemetry.Metrics.ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil))
	b.must(w.end())
	w.mu.Lock()
	defer w.mu.Unlock()
	id := b.trace.TraceID()
	for _, procedure := range []string{"LoadHead", "CallTool", "CommitHead", brokers.Model} {
		told := b.brokers.Traces(procedure)
		if procedure == brokers.Model && len(told) == 0 {
			continue // it asks none
		}
		if len(told) == 0 || slices.ContainsFunc(told, func(t string) bool { return t != id.String() }) {
			b.Logf("of %s the traces are %q, and the caller's is %s", procedure, told, id)
			b.only("observability.trace_propagation", harness.Unsupported)
		}
		if procedure == brokers.Model {
			continue // modelproxy counts and times it
		}
		if !strings.Contains(answer.Body.String(), "/"+procedure+`"`) {
			b.Logf("%s is in no metric: %s", procedure, answer.Body)
			b.only("observability.metrics", harness.Unsupported)
		}
		if !slices.ContainsFunc(w.spans, func(s sdktrace.ReadOnlySpan) bool {
			return s.SpanKind() == trace.SpanKindClient && s.SpanContext().TraceID() == id && strings.HasSuffix(s.Name(), procedure)
		}) {
			b.Logf("%s is in no span of %d", procedure, len(w.spans))
			b.only("observability.tracing", harness.Unsupported)
		}
	}
}
