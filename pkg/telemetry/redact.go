package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// allowed reports whether an attribute may leave: the contract's list of
// attributes, and what the RPC libraries say about a call itself. Everything
// else is cut, whoever set it.
func allowed(key attribute.Key) bool {
	k := string(key)
	switch {
	case strings.HasPrefix(k, "cofferdam."):
		return allowedOwn(strings.TrimPrefix(k, "cofferdam."))
	case k == "rpc.system.name", k == "rpc.system", k == "rpc.method", k == "rpc.service",
		k == "rpc.response.status_code", k == "rpc.connect_rpc.error_code", k == "error.type",
		k == "network.protocol.name", k == "network.protocol.version":
		return true
	default:
		return false
	}
}

func allowedOwn(k string) bool {
	switch k {
	case "harness_id", "adapter_id", "adapter_version", "execution_mode", "profile", "operation",
		"outcome", "error_code", "error_category", "binding_digest", "run_digest", "sandbox_digest",
		"generation", "count", "size_bytes", "duration_ms", "tool_risk", "replayed":
		return true
	default:
		return false
	}
}

func filter(in []attribute.KeyValue) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(in))
	for _, kv := range in {
		if allowed(kv.Key) {
			out = append(out, kv)
		}
	}
	return out
}

// redacting cuts what may not leave from every span, as late as possible, so
// that no instrumentation has to be trusted.
type redacting struct{ next sdktrace.SpanExporter }

func (r redacting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	out := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		out[i] = redacted{s}
	}
	return r.next.ExportSpans(ctx, out)
}

func (r redacting) Shutdown(ctx context.Context) error { return r.next.Shutdown(ctx) }

type redacted struct{ sdktrace.ReadOnlySpan }

func (s redacted) Attributes() []attribute.KeyValue { return filter(s.ReadOnlySpan.Attributes()) }

func (s redacted) Events() []sdktrace.Event {
	in := s.ReadOnlySpan.Events()
	out := make([]sdktrace.Event, len(in))
	for i, e := range in {
		e.Attributes = filter(e.Attributes)
		out[i] = e
	}
	return out
}

func (s redacted) Links() []sdktrace.Link {
	in := s.ReadOnlySpan.Links()
	out := make([]sdktrace.Link, len(in))
	for i, l := range in {
		l.Attributes = filter(l.Attributes)
		out[i] = l
	}
	return out
}

// Status loses its description: it may hold an error's text.
func (s redacted) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}

// outageLogEvery is how often an outage of the collector is logged.
const outageLogEvery = time.Minute

// tolerant turns a collector's outage into a count and a log line.
type tolerant struct {
	next    sdktrace.SpanExporter
	dropped metric.Int64Counter
	logger  *slog.Logger
	last    atomic.Int64
}

func (t *tolerant) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := t.next.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	t.dropped.Add(context.WithoutCancel(ctx), int64(len(spans)))
	now, last := time.Now().UnixNano(), t.last.Load()
	if now-last > int64(outageLogEvery) && t.last.CompareAndSwap(last, now) && t.logger != nil {
		// The error's text may hold an address with credentials; its place is not a log.
		t.logger.WarnContext(ctx, "telemetry collector does not take spans; they are dropped and counted", "spans", len(spans))
	}
	return nil
}

func (t *tolerant) Shutdown(ctx context.Context) error { return t.next.Shutdown(ctx) }
