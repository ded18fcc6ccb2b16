package conformance

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"buf.build/go/protovalidate"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/worker/internal/conformance/internal/rpc/brokers"
)

// ground is what the fixtures of one adapter stand on: a trust domain, a committed
// record in memory, one server that is all brokers, and one listener behind which
// all workers stand. Each fixture has a binding of its own on it, and no other
// fixture's is in reach of its workers: their capabilities name it.
type ground struct {
	stand   *rpctest.Stand
	brokers *brokers.Brokers
	// sandbox is as whom every worker calls its brokers.
	sandbox  identity.Source
	validate protovalidate.Validator
	// http is the control plane's way to all workers, at url.
	http *http.Client
	url  string

	mu      sync.Mutex
	workers map[string]http.Handler
}

func newGround(t *testing.T) *ground {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "test", Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	store := bindingtest.NewMemory()
	g := &ground{
		stand: &rpctest.Stand{
			Domain: identitytest.New(t), Minter: capabilitytest.NewMinter(t), Backend: &rpctest.Backend{Backend: store},
			Writer: binding.NewWriter(store, time.Now), Logger: logger, Telemetry: tel,
		},
		workers: map[string]http.Handler{},
	}
	if g.validate, err = protovalidate.New(); err != nil {
		t.Fatal(err)
	}
	g.brokers = brokers.New(t, g.stand)
	g.sandbox = g.stand.Source(t, rpctest.SandboxID())
	g.url = g.stand.Serve(t, rpctest.Service{
		Handler: g, ID: rpctest.SandboxID(), Allow: identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))},
	})
	g.http = g.stand.Dial(t, g.url, rpctest.SandboxID(), rpctest.ServiceID("controlplane")).HTTP
	return g
}

// serve puts a worker behind the listener until the end of a test, and gives its
// address.
func (g *ground) serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	name := "/" + rand.Text()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.workers[name] = http.StripPrefix(name, h)
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.workers, name)
	})
	return g.url + name
}

// ServeHTTP implements http.Handler: the first name of a path is the worker.
func (g *ground) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	g.mu.Lock()
	h := g.workers["/"+name]
	g.mu.Unlock()
	if h == nil { // whoever is late finds nobody
		fault.WriteHTTP(w, fault.New(fault.SandboxNotReady, "conformance"))
		return
	}
	h.ServeHTTP(w, r)
}
