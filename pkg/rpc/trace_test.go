package rpc_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/telemetry"
)

// exported are the spans of a server, once it has ended.
type exported struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

func (e *exported) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spans = append(e.spans, spans...)
	return nil
}

func (*exported) Shutdown(context.Context) error { return nil }

// A plain route goes on in the trace of its caller, as a procedure does, and who
// may not call opens no span.
func TestARouteIsInTheTraceOfItsCaller(t *testing.T) {
	s, spans := rpctest.NewStand(t), &exported{}
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "test", Exporter: spans})
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.RPC()
	cfg.Telemetry = tel
	server := rpc.NewServer(cfg, nil)
	controlplane := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}
	seen := make(chan trace.SpanContext, 2)
	server.HandleHTTP("GET /route", rpc.Policy{Callers: controlplane}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- trace.SpanContextFromContext(r.Context())
	}))
	h, err := server.Handler()
	if err != nil {
		t.Fatal(err)
	}
	both := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane")), identity.Exactly(rpctest.ServiceID("another"))}
	url := s.Serve(t, rpctest.Service{Handler: h, ID: rpctest.ServiceID("toolbroker"), Allow: both})
	for caller, status := range map[string]int{"controlplane": http.StatusOK, "another": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/route", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Traceparent", traceparent)
		res, err := s.Dial(t, url, rpctest.ServiceID("toolbroker"), rpctest.ServiceID(caller)).HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s is answered with %d", caller, res.StatusCode)
		}
	}
	if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	if got := <-seen; got.TraceID().String() != id || len(seen) != 0 {
		t.Errorf("the handler is in the trace %s, and %d others came", got.TraceID(), len(seen))
	}
	spans.mu.Lock()
	defer spans.mu.Unlock()
	if len(spans.spans) != 1 || spans.spans[0].Name() != "GET /route" || spans.spans[0].Parent().TraceID().String() != id {
		t.Errorf("spans: %v", spans.spans)
	}
}
