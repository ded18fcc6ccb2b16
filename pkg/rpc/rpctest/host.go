package rpctest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
)

// Service is a service under test.
type Service struct {
	Handler http.Handler
	// ID as which it serves.
	ID spiffeid.ID
	// Allow is the list of its listener.
	Allow identity.AllowList
	// State is everything that the service keeps besides the record and the
	// ledger, as text; nil where it keeps nothing.
	State func(t *testing.T) string
	// BeforeWrite makes f run once, before the next write of the service, for
	// Race; nil takes the hook of the Stand's Backend.
	BeforeWrite func(f func())
}

// Client speaks to the service under test.
type Client struct {
	// RPC returns errors that are faults.
	RPC *connect.Client
	// HTTP, BaseURL and Token are for plain routes.
	HTTP    *http.Client
	BaseURL string
	Token   string
}

// Runtime is what a service with this configuration runs with as id.
func (s *Stand) Runtime(t *testing.T, base *service.Base, id spiffeid.ID) *service.Runtime {
	t.Helper()
	return base.Runtime(s.Logger, s.Source(t, id), s.Domain.TrustDomain(), s.Telemetry)
}

// Serve serves s on loopback with mutual TLS until the end of the test, and
// gives its base URL.
func (s *Stand) Serve(t *testing.T, svc Service) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server := service.HTTPServer(svc.Handler, s.Logger)
	ctx := context.WithoutCancel(t.Context())
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(tls.NewListener(l, identity.ServerTLS(s.Source(t, svc.ID), svc.Allow))); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		must(t, server.Close())
		wg.Wait()
	})
	return "https://" + l.Addr().String()
}

// Dial makes a client that is as and expects server at baseURL.
func (s *Stand) Dial(t *testing.T, baseURL string, server, as spiffeid.ID) *Client {
	t.Helper()
	return s.client(t, identity.HTTPClient(s.Source(t, as), server, identity.ClientOptions{}), baseURL)
}

func (s *Stand) client(t *testing.T, hc *http.Client, baseURL string) *Client {
	t.Helper()
	t.Cleanup(hc.CloseIdleConnections)
	cc, err := rpc.NewClient(hc, baseURL, s.Telemetry)
	must(t, err)
	return &Client{RPC: cc, HTTP: hc, BaseURL: baseURL}
}

// host is a service that is served, and what the table sees of it.
type host struct {
	stand   *Stand
	service Service
	baseURL string
	reached atomic.Int64 // requests that a handler saw
	status  atomic.Int64 // of the last answer
}

func (s *Stand) host(t *testing.T, open func(*testing.T, *Stand) Service) *host {
	t.Helper()
	h := &host{stand: s, service: open(t, s)}
	served := h.service
	served.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.reached.Add(1)
		h.service.Handler.ServeHTTP(w, r)
	})
	h.baseURL = s.Serve(t, served)
	return h
}

// state is all that is compared.
func (h *host) state(t *testing.T) string {
	t.Helper()
	return h.stand.state(t) + "\n" + h.kept(t)
}

// kept is what the service keeps besides the record and the ledger.
func (h *host) kept(t *testing.T) string {
	t.Helper()
	if h.service.State == nil {
		return ""
	}
	return h.service.State(t)
}

// dial makes the connection of a row; each row has its own.
func (h *host) dial(t *testing.T, r row) *Client {
	t.Helper()
	s, baseURL := h.stand, h.baseURL
	var hc *http.Client
	switch {
	case r.plain:
		baseURL = strings.Replace(baseURL, "https://", "http://", 1)
		hc = &http.Client{Transport: &http.Transport{}}
	case r.anonymous:
		var protocols http.Protocols
		protocols.SetHTTP2(true)
		hc = &http.Client{Transport: &http.Transport{
			Protocols:       &protocols,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, //nolint:gosec // who the server is does not matter here
		}}
	case r.foreign:
		hc = identity.HTTPClient(s.Domain.SelfSigned(t, r.as), h.service.ID, identity.ClientOptions{})
	default:
		hc = identity.HTTPClient(s.Source(t, r.as), h.service.ID, identity.ClientOptions{})
	}
	t.Cleanup(hc.CloseIdleConnections)
	seen := *hc
	seen.Transport = &recorder{next: hc.Transport, status: &h.status}
	c := s.client(t, &seen, baseURL)
	c.Token = r.token
	return c
}

// recorder keeps the status of the last answer.
type recorder struct {
	next   http.RoundTripper
	status *atomic.Int64
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.status.Store(0)
	res, err := r.next.RoundTrip(req)
	if err == nil {
		r.status.Store(int64(res.StatusCode))
	}
	return res, err
}
