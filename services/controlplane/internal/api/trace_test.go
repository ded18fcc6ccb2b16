package api_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// traced writes down what a start is told of the caller's trace.
type traced struct {
	api.Runs

	spans, members chan int
}

func (r traced) Start(ctx context.Context, caller runs.Caller, req runs.StartRequest) (runs.Started, error) {
	spans := 0
	if trace.SpanContextFromContext(ctx).IsValid() {
		spans++
	}
	r.spans <- spans
	r.members <- baggage.FromContext(ctx).Len()
	return r.Runs.Start(ctx, caller, req)
}

// Whoever calls from outside joins none of our traces, marks none of them to be kept,
// and brings no baggage: the trace of a run begins here. However much of it there is,
// the request is served like any other.
func TestATraceFromOutsideIsReplaced(t *testing.T) {
	t.Parallel()
	seen := traced{spans: make(chan int, 1), members: make(chan int, 1)}
	f := newFixture(t, options{change: func(c *api.Config) { seen.Runs, c.Runs = c.Runs, &seen }})
	for name, header := range map[string]http.Header{
		"good":       {"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "Tracestate": {"a=b"}, "Baggage": {"user=admin,role=operator"}},
		"two":        {"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		"garbage":    {"Traceparent": {"00-zz"}, "Baggage": {";;;=,%%"}},
		"a lot":      {"Baggage": {strings.Repeat("k=v,", 4000)}},
		"many lines": {"Baggage": strings.Split(strings.Repeat("k=v ", 500), " ")},
	} {
		body := strings.Replace(goodStart, "c1", "c-"+strings.ReplaceAll(name, " ", "-"), 1)
		r := f.request(t, http.MethodPost, "/api/v1/runs", body)
		maps.Copy(r.Header, header)
		if a := f.send(t, r); a.status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		if spans, members := <-seen.spans, <-seen.members; spans != 0 || members != 0 {
			t.Errorf("%s: %d spans and %d members of baggage came in", name, spans, members)
		}
	}
}
