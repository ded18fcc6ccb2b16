package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a handler whose Put does what the test says.
type memory struct {
	memoryv1connect.UnimplementedMemoryServiceHandler
	put func(ctx context.Context, req *memoryv1.PutRequest) error
}

func (m memory) Put(ctx context.Context, req *memoryv1.PutRequest) (*memoryv1.PutResponse, error) {
	return &memoryv1.PutResponse{Revision: 1}, m.put(ctx, req)
}

func callers() identity.AllowList { return identity.AllowList{identity.Exactly(rpctest.SandboxID())} }

func policies() map[string]rpc.Policy {
	p := rpc.Policy{Callers: callers(), Audience: capability.Memory, Fence: rpc.RunFence, MaxBytes: 1 << 10}
	return map[string]rpc.Policy{
		memoryv1connect.MemoryServicePutProcedure: p, memoryv1connect.MemoryServiceGetProcedure: p,
		memoryv1connect.MemoryServiceSearchProcedure: p, memoryv1connect.MemoryServiceDeleteProcedure: p,
	}
}

// serve serves a memory service and gives a client of it with the right token.
func serve(t *testing.T, s *rpctest.Stand, cfg rpc.Config, put func(context.Context, *memoryv1.PutRequest) error) (*rpctest.Client, context.Context) {
	t.Helper()
	srv := rpc.NewServer(cfg, policies())
	memoryv1connect.RegisterMemoryServiceHandler(srv.Connect(), memory{put: put})
	h, err := srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	id := rpctest.ServiceID("statefacade")
	url := s.Serve(t, rpctest.Service{Handler: h, ID: id, Allow: callers()})
	return s.Dial(t, url, id, rpctest.SandboxID()), rpc.WithToken(t.Context(), token(s, capability.Memory))
}

func token(s *rpctest.Stand, aud capability.Audience) string {
	c := capabilitytest.Claims(aud, rpctest.SandboxID())
	c.BindingID, c.Epoch, c.Generation, c.RunID = s.BindingID, rpctest.Epoch, rpctest.Generation, s.RunID
	return s.Minter.Mint(c)
}

func put(e fence.Envelope) *memoryv1.PutRequest {
	return &memoryv1.PutRequest{
		Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: "k", Kind: memoryv1.Kind_KIND_SEMANTIC,
		ContentType: "text/plain", Content: []byte("x"),
	}
}

func TestAProcedureWithoutAPolicyIsNotServed(t *testing.T) {
	s := rpctest.NewStand(t)
	p := policies()
	delete(p, memoryv1connect.MemoryServiceGetProcedure)
	srv := rpc.NewServer(s.RPC(), p)
	memoryv1connect.RegisterMemoryServiceHandler(srv.Connect(), memory{})
	if _, err := srv.Handler(); err == nil || !strings.Contains(err.Error(), "MemoryService/Get") {
		t.Errorf("err = %v, want one that names the procedure", err)
	}
}

func TestAPolicyNeedsWhatItAsksFor(t *testing.T) {
	s := rpctest.NewStand(t)
	cfg := s.RPC()
	cfg.Verifier = nil
	if _, err := rpc.NewServer(cfg, policies()).Handler(); err == nil {
		t.Error("a capability without a verifier is accepted")
	}
	cfg = s.RPC()
	cfg.Guard = nil
	if _, err := rpc.NewServer(cfg, policies()).Handler(); err == nil {
		t.Error("a fence without a guard is accepted")
	}
}

// A role check passed because the list of allowed services was empty.
func TestAPolicyWithoutCallersRefusesEverybody(t *testing.T) {
	s := rpctest.NewStand(t)
	p := policies()
	for name, x := range p {
		x.Callers = nil
		p[name] = x
	}
	srv := rpc.NewServer(s.RPC(), p)
	memoryv1connect.RegisterMemoryServiceHandler(srv.Connect(), memory{put: func(context.Context, *memoryv1.PutRequest) error { return nil }})
	h, err := srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	id := rpctest.ServiceID("statefacade")
	c := s.Dial(t, s.Serve(t, rpctest.Service{Handler: h, ID: id, Allow: callers()}), id, rpctest.SandboxID())
	_, err = memoryv1connect.NewMemoryServiceClient(c.RPC).Put(rpc.WithToken(t.Context(), token(s, capability.Memory)), put(s.Envelope()))
	if !fault.Is(err, fault.CallerNotAllowed) {
		t.Errorf("err = %v, want caller_not_allowed", err)
	}
}

func TestAHandlerSeesWhoAsksAndAGrant(t *testing.T) {
	s := rpctest.NewStand(t)
	e := s.Envelope()
	c, ctx := serve(t, s, s.RPC(), func(ctx context.Context, _ *memoryv1.PutRequest) error {
		g, err := rpc.GrantFrom(ctx)
		if err != nil {
			t.Errorf("GrantFrom: %v", err)
		}
		if g.Envelope().IdempotencyKey != e.IdempotencyKey {
			t.Errorf("grant is for %q", g.Envelope().IdempotencyKey)
		}
		if peer, ok := rpc.PeerFrom(ctx); !ok || peer != rpctest.SandboxID() {
			t.Errorf("peer = %v, %v", peer, ok)
		}
		if claims, ok := rpc.ClaimsFrom(ctx); !ok || claims.RunID != s.RunID {
			t.Errorf("claims = %+v, %v", claims, ok)
		}
		return nil
	})
	if _, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, put(e)); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutTheDoorThereIsNoGrant(t *testing.T) {
	if _, err := rpc.GrantFrom(t.Context()); err == nil {
		t.Error("a grant out of nothing")
	}
}

// A body that cannot be decoded is refused for its missing token first: nothing
// of a request is decoded before it is known who sent it.
func TestTheTokenIsAskedForBeforeTheBodyIsDecoded(t *testing.T) {
	s := rpctest.NewStand(t)
	c, _ := serve(t, s, s.RPC(), func(context.Context, *memoryv1.PutRequest) error { return nil })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.BaseURL+memoryv1connect.MemoryServicePutProcedure, strings.NewReader("{not json"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("status = %d, want 401", res.StatusCode)
	}
}

func TestErrorsAreSafe(t *testing.T) {
	const canary = "canary-7c2e"
	var log lockedBuffer
	s := rpctest.NewStand(t)
	cfg := s.RPC()
	cfg.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	cases := map[string]struct {
		do   func() error
		code fault.Code
	}{
		"plain error": {func() error { return errors.New(canary) }, fault.Internal},
		"panic":       {func() error { panic(canary) }, fault.Internal},
		"cause":       {func() error { return fault.Wrap(errors.New(canary), fault.RevisionConflict, "op-"+canary) }, fault.RevisionConflict},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, ctx := serve(t, s, cfg, func(context.Context, *memoryv1.PutRequest) error { return tc.do() })
			_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, put(s.Envelope()))
			if !fault.Is(err, tc.code) {
				t.Fatalf("err = %v, want %s", err, tc.code)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the wire told %q", err)
			}
			var f *fault.Error
			if errors.As(err, &f) && tc.code == fault.Internal && !strings.Contains(log.String(), f.Incident()) {
				t.Errorf("the log does not know incident %s", f.Incident())
			}
		})
	}
}

func TestWhatIsTooLargeOrBreaksTheSchemaNamesItsPlace(t *testing.T) {
	s := rpctest.NewStand(t)
	var reached atomic.Int64
	c, ctx := serve(t, s, s.RPC(), func(context.Context, *memoryv1.PutRequest) error { reached.Add(1); return nil })
	client := memoryv1connect.NewMemoryServiceClient(c.RPC)
	large := put(s.Envelope())
	large.Content = bytes.Repeat([]byte("x"), 2<<10)
	if _, err := client.Put(ctx, large); !fault.Is(err, fault.RequestTooLarge) {
		t.Errorf("too large: %v, want request_too_large", err)
	}
	bad := put(s.Envelope())
	bad.Key = "no/slash canary-value"
	_, err := client.Put(ctx, bad)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code() != fault.InvalidRequest || !strings.Contains(f.Detail(), "key") || strings.Contains(f.Detail(), "canary") {
		t.Errorf("bad key: %v, want invalid_request that names the field and not the value", err)
	}
	none := put(s.Envelope())
	none.Envelope = nil
	if _, err := client.Put(ctx, none); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("no envelope: %v, want invalid_request", err)
	}
	other := put(s.Envelope())
	other.Envelope.ProtocolVersion = 2
	if _, err := client.Put(ctx, other); !fault.Is(err, fault.ProtocolUnsupported) {
		t.Errorf("version 2: %v, want protocol_unsupported", err)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d refused requests reached the handler", n)
	}
}

func TestTheEnvelopesDeadlineEndsTheHandler(t *testing.T) {
	s := rpctest.NewStand(t)
	c, ctx := serve(t, s, s.RPC(), func(ctx context.Context, _ *memoryv1.PutRequest) error {
		<-ctx.Done()
		return ctx.Err()
	})
	e := s.Envelope()
	e.Deadline = time.Now().Add(200 * time.Millisecond)
	if _, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, put(e)); !fault.Is(err, fault.DeadlineExceeded) {
		t.Errorf("err = %v, want deadline_exceeded", err)
	}
	e.Deadline = time.Now().Add(-time.Second)
	if _, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, put(e)); !fault.Is(err, fault.DeadlineExceeded) {
		t.Errorf("already over: %v, want deadline_exceeded", err)
	}
}

func TestAPlainRouteHasTheSameDoor(t *testing.T) {
	s := rpctest.NewStand(t)
	p := rpc.Policy{Callers: callers(), Audience: capability.ModelProxy, Fence: rpc.RunFence, MaxBytes: 8}
	srv := rpc.NewServer(s.RPC(), nil)
	srv.HandleHTTP("POST /x", p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := rpc.GrantFrom(r.Context()); err != nil {
			t.Errorf("GrantFrom: %v", err)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			fault.WriteHTTP(w, fault.New(fault.RequestTooLarge, "test"))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	srv.HandleHTTP("POST /panic", p, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	h, err := srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	id := rpctest.ServiceID("modelproxy")
	c := s.Dial(t, s.Serve(t, rpctest.Service{Handler: h, ID: id, Allow: callers()}), id, rpctest.SandboxID())
	right, err := rpc.EncodeEnvelope(s.Envelope())
	if err != nil {
		t.Fatal(err)
	}
	stale := s.Envelope()
	stale.Generation--
	low, err := rpc.EncodeEnvelope(stale)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		path, envelope, body string
		token                string
		status               int
	}{
		"all right":                   {"/x", right, "ok", token(s, capability.ModelProxy), http.StatusNoContent},
		"too large":                   {"/x", right, "much too large", token(s, capability.ModelProxy), http.StatusRequestEntityTooLarge},
		"no token":                    {"/x", right, "ok", "", http.StatusUnauthorized},
		"other audience":              {"/x", right, "ok", token(s, capability.Memory), http.StatusUnauthorized},
		"no envelope":                 {"/x", "", "ok", token(s, capability.ModelProxy), http.StatusBadRequest},
		"bad envelope":                {"/x", "%%%", "ok", token(s, capability.ModelProxy), http.StatusBadRequest},
		"other than the capability's": {"/x", low, "ok", token(s, capability.ModelProxy), http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := post(t.Context(), c, tc.path, tc.token, tc.envelope, tc.body)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if res.StatusCode != tc.status {
				t.Errorf("status = %d, want %d", res.StatusCode, tc.status)
			}
		})
	}
	if res, err := post(t.Context(), c, "/panic", token(s, capability.ModelProxy), right, "ok"); err == nil {
		_ = res.Body.Close()
		t.Errorf("a panic was answered with %d, want a reset stream", res.StatusCode)
	}
}

func post(ctx context.Context, c *rpctest.Client, path, token, envelope, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if envelope != "" {
		req.Header.Set(rpc.EnvelopeHeader, envelope)
	}
	return c.HTTP.Do(req)
}

func TestStaleIs409(t *testing.T) {
	s := rpctest.NewStand(t)
	c, ctx := serve(t, s, s.RPC(), func(context.Context, *memoryv1.PutRequest) error { return nil })
	s.Replace(t)
	_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, put(s.Envelope()))
	if !fault.Is(err, fault.StaleLease) {
		t.Fatalf("err = %v, want stale_lease", err)
	}
}

func TestEndpoints(t *testing.T) {
	id := spiffeid.RequireFromString("spiffe://example.org/svc/x")
	e, err := rpc.ParseEndpoint("unix:///run/x.sock", id.String())
	if err != nil || !strings.HasPrefix(e.BaseURL(), "https://") || e.ID != id {
		t.Errorf("unix endpoint = %+v, %v", e, err)
	}
	if _, err := rpc.ParseEndpoint("", id.String()); err == nil {
		t.Error("an endpoint without an address is accepted")
	}
	if _, err := rpc.ParseEndpoint("https://x", "not a spiffe id"); err == nil {
		t.Error("an endpoint without an identity is accepted")
	}
}

func FuzzDecodeEnvelope(f *testing.F) {
	for _, seed := range []string{"", "%%%", "AAAA", string(protowire.AppendTag(nil, 1, protowire.VarintType))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		e, err := rpc.DecodeEnvelope(header)
		if err != nil {
			return
		}
		again, err := rpc.EncodeEnvelope(e)
		if err != nil {
			t.Fatalf("what decodes does not encode: %v", err)
		}
		back, err := rpc.DecodeEnvelope(again)
		if err != nil || back != e {
			t.Fatalf("round trip: %+v, %v; want %+v", back, err, e)
		}
	})
}

// lockedBuffer lets handlers write and the test read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
