//go:build cluster

package sandboxes

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

// collectorAddress is where the services send their spans.
const collectorAddress = kube.Host + ":4318"

// collector keeps the spans of the control plane. It sees what a claim takes from inside the product, without a part of
// the test in between.
type collector struct {
	mu    sync.Mutex
	spans []*tracev1.Span
}

// collect listens until the test ends, and lets the control plane through to it.
func collect(t *testing.T, c *kube.Cluster) *collector {
	t.Helper()
	c.MustApply(t, installation.System, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: test-collector}
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: controlplane}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: `+kube.Host+`/32}}], ports: [{port: 4318}]}]
`)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", collectorAddress)
	if err != nil {
		t.Fatal(err)
	}
	into := &collector{}
	server := &http.Server{Handler: into, ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) }) // until it is closed
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	return into
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	var data tracev1.TracesData // an ExportTraceServiceRequest has the same one field
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range data.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

// bound is how long a claim took until its worker had answered bind, and each step of that.
type bound struct {
	whole time.Duration
	steps map[string]time.Duration
}

const bindCall = "Bind"

// of waits for the spans of a claim.
func (c *collector) of(t *testing.T, claim string) (b bound) {
	t.Helper()
	kube.Eventually(t, "the spans of claim "+claim, func(context.Context) error {
		var ok bool
		if b, ok = c.bound(claim); !ok {
			return fmt.Errorf("they are not there")
		}
		return nil
	})
	return b
}

func (c *collector) bound(claim string) (bound, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := bound{steps: map[string]time.Duration{}}
	var begun, answered uint64
	parents := map[string]bool{}
	for _, s := range c.spans {
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "cofferdam.sandbox_digest" && a.GetValue().GetStringValue() == claim {
				parents[string(s.GetSpanId())] = true
				b.steps[s.GetName()] = took(s)
				if s.GetName() == "sandbox.claim" {
					begun = s.GetStartTimeUnixNano()
				}
			}
		}
	}
	for _, s := range c.spans {
		if !parents[string(s.GetParentSpanId())] {
			continue
		}
		name := s.GetName()[strings.LastIndex(s.GetName(), "/")+1:]
		b.steps[name] += took(s)
		if name == bindCall {
			answered = s.GetEndTimeUnixNano()
		}
	}
	if begun == 0 || answered == 0 {
		return b, false
	}
	b.whole = time.Duration(answered - begun)
	return b, true
}

func took(s *tracev1.Span) time.Duration {
	return time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()) //nolint:gosec // a duration of some milliseconds
}
