// Package telemetry sets up traces and metrics, and keeps what must not leave
// out of them: the contract's section "Traces".
//
// Trace context correlates and never authorizes. Baggage is not propagated. A
// collector that is away drops telemetry, counts what it dropped, and changes
// nothing else.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Bounds of the export queue. What does not fit is dropped and counted.
const (
	maxQueue      = 2048
	maxBatch      = 256
	exportTimeout = 5 * time.Second
	batchTimeout  = 2 * time.Second
)

// Config of one service's telemetry.
type Config struct {
	// Service is the name of the service, such as "toolbroker".
	Service string
	// OTLPEndpoint is the URL of an OTLP/HTTP collector; empty exports nothing.
	OTLPEndpoint string
	Logger       *slog.Logger
	// Exporter replaces the OTLP exporter in tests.
	Exporter sdktrace.SpanExporter
}

// Telemetry is what a service instruments itself with.
type Telemetry struct {
	// Tracer makes spans.
	Tracer trace.Tracer
	// TracerProvider is for libraries that make spans themselves.
	TracerProvider trace.TracerProvider
	// MeterProvider makes instruments; what they measure is at Metrics.
	MeterProvider metric.MeterProvider
	// Propagator carries W3C trace context and no baggage.
	Propagator propagation.TextMapPropagator
	// Metrics serves the Prometheus text format.
	Metrics http.Handler

	shutdown []func(context.Context) error
}

// New sets up telemetry. It makes no connection: a collector that is away is
// found out in the background.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("telemetry: prometheus exporter: %w", err)
	}
	res := resource.NewSchemaless(attribute.String("service.name", "cofferdam-"+cfg.Service))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	t := &Telemetry{
		MeterProvider: meters,
		Propagator:    propagation.TraceContext{},
		Metrics:       promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		shutdown:      []func(context.Context) error{meters.Shutdown},
	}

	exporter := cfg.Exporter
	if exporter == nil && cfg.OTLPEndpoint != "" {
		exporter, err = otlptracehttp.New(ctx,
			otlptracehttp.WithEndpointURL(cfg.OTLPEndpoint),
			otlptracehttp.WithTimeout(exportTimeout),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTimeout, MaxElapsedTime: 3 * exportTimeout}))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("telemetry: OTLP exporter: %w", err), t.Shutdown(ctx))
		}
	}
	if exporter == nil {
		// Who exports nothing has no say in whether others do: a trace goes through as it
		// came. A sampler that never samples would say so to everybody behind.
		t.TracerProvider = noop.NewTracerProvider()
	} else {
		dropped, cerr := meters.Meter("cofferdam").Int64Counter("cofferdam.telemetry.dropped_spans",
			metric.WithDescription("Spans that could not be exported."))
		if cerr != nil {
			return nil, errors.Join(fmt.Errorf("telemetry: counter: %w", cerr), t.Shutdown(ctx))
		}
		traces := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(
			&tolerant{next: redacting{exporter}, dropped: dropped, logger: cfg.Logger},
			sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(batchTimeout), sdktrace.WithExportTimeout(exportTimeout)))
		t.TracerProvider = traces
		t.shutdown = append(t.shutdown, traces.Shutdown)
	}
	t.Tracer = t.TracerProvider.Tracer("cofferdam.dev/" + cfg.Service)
	return t, nil
}

// Shutdown flushes what it can until ctx ends.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for _, f := range t.shutdown {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}
