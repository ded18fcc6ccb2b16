package rpc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace/noop"

	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
)

// Each sandbox has an address of its own, of which there is no end: what is measured of calls is not kept by address.
func TestMeasuresDoNotGrowWithThePeers(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) }()
	tel := &telemetry.Telemetry{MeterProvider: provider, TracerProvider: noop.NewTracerProvider(), Propagator: propagation.TraceContext{}}
	const peers = 3
	for range peers {
		server := httptest.NewServer(http.NotFoundHandler())
		c, err := rpc.NewClient(server.Client(), server.URL, tel)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workerv1connect.NewWorkerServiceClient(c).Ready(t.Context(), &workerv1.ReadyRequest{}); err == nil {
			t.Error("nobody is there, and it answered")
		}
		server.Close()
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			h, ok := m.Data.(metricdata.Histogram[float64])
			if !ok {
				continue
			}
			seen++
			if n := len(h.DataPoints); n != 1 || h.DataPoints[0].Count != peers {
				t.Errorf("%s of %d peers: %s", m.Name, peers, fmt.Sprint(h.DataPoints))
			}
		}
	}
	if seen == 0 {
		t.Error("nothing was measured")
	}
}
