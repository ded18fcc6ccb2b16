package rpc_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// broker writes down what a handler sees of a request's baggage.
type broker struct {
	toolbrokerv1connect.UnimplementedToolBrokerServiceHandler

	calls, members int
	traced         bool
}

func (b *broker) ListTools(ctx context.Context, _ *toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
	b.calls++
	b.members += baggage.FromContext(ctx).Len()
	b.traced = trace.SpanContextFromContext(ctx).TraceID().String() == "0af7651916cd43dd8448eb211c80319c"
	return &toolbrokerv1.ListToolsResponse{}, nil
}

// baggageOf is so many bytes of baggage in headers of its own or in one.
func baggageOf(bytes int, many bool) []string {
	var members []string
	for n, i := 0, 0; n < bytes; i++ {
		m := fmt.Sprintf("key%d=value%d", i, i)
		members = append(members, m)
		n += len(m) + 1
	}
	if many {
		return members
	}
	return []string{strings.Join(members, ",")}
}

// Baggage is not propagated, so nobody takes it apart: what arrives of it costs
// what any other header costs, and more than fits is refused before any code of
// ours (CVE-2026-29181, CVE-2026-41178).
func TestBaggageIsIgnored(t *testing.T) {
	s := rpctest.NewStand(t)
	allow := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}
	server := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		toolbrokerv1connect.ToolBrokerServiceListToolsProcedure: {Callers: allow},
	}, toolbrokerv1.File_harness_toolbroker_v1_toolbroker_proto))
	b := &broker{}
	toolbrokerv1connect.RegisterToolBrokerServiceHandler(server.Connect(), b)
	h, err := server.Handler()
	if err != nil {
		t.Fatal(err)
	}
	url := s.Serve(t, rpctest.Service{Handler: h, ID: rpctest.ServiceID("toolbroker"), Allow: allow})
	c := s.Dial(t, url, rpctest.ServiceID("toolbroker"), rpctest.ServiceID("controlplane"))
	call := func(headers []string) int {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+toolbrokerv1connect.ToolBrokerServiceListToolsProcedure, strings.NewReader(`{"toolIds":["fs.*"]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("traceparent", traceparent)
		req.Header["Baggage"] = headers
		res, err := c.HTTP.Do(req)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	for _, many := range []bool{false, true} {
		for _, bytes := range []int{20, 8 << 10} {
			b.calls = 0
			if status := call(baggageOf(bytes, many)); status != http.StatusOK || b.calls != 1 || b.members != 0 || !b.traced {
				t.Errorf("%d bytes, many headers %v: status %d, %d calls, %d members, traced %v", bytes, many, status, b.calls, b.members, b.traced)
			}
		}
		b.calls = 0
		if status := call(baggageOf(1<<20, many)); status == http.StatusOK || b.calls != 0 {
			t.Errorf("1 MiB, many headers %v: status %d, %d calls", many, status, b.calls)
		}
	}
	if status := call(nil); status != http.StatusOK {
		t.Errorf("a request without any, afterwards: %d", status)
	}
}

// What the propagator does for a request is the same with and without baggage.
func TestBaggageCostsNothing(t *testing.T) {
	p := rpctest.NewStand(t).Telemetry.Propagator
	for _, f := range p.Fields() {
		if strings.EqualFold(f, "baggage") {
			t.Errorf("the propagator reads %s", f)
		}
	}
	extract := func(h http.Header) float64 {
		return testing.AllocsPerRun(100, func() { _ = p.Extract(t.Context(), propagation.HeaderCarrier(h)) })
	}
	plain := http.Header{"Traceparent": {traceparent}}
	laden := http.Header{"Traceparent": {traceparent}, "Baggage": baggageOf(1<<20, true)}
	if a, b := extract(plain), extract(laden); a != b {
		t.Errorf("%v allocations without baggage, %v with a megabyte of it", a, b)
	}
}
