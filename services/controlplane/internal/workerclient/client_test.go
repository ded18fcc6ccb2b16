package workerclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"cofferdam.dev/pkg/fault"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestReady(t *testing.T) {
	s := openFake(t, &fake{ready: func(ctx context.Context) (*workerv1.ReadyResponse, error) {
		if a := authorization(ctx); a != "" {
			t.Errorf("ready came with %q", a)
		}
		return &workerv1.ReadyResponse{
			Ready: true, ProtocolVersions: []uint32{1, 2}, HarnessId: "native", AdapterVersion: "1.2.3", WorkerImageDigest: "sha256:1", BootNonce: "nonce", Bound: true,
		}, nil
	}})
	got, err := s.client.Ready(bounded(t))
	want := worker.Ready{
		Ready: true, ProtocolVersions: []uint32{1, 2}, HarnessID: "native", AdapterVersion: "1.2.3", ImageDigest: "sha256:1", BootNonce: "nonce", Bound: true,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// binding has a value in every field.
func binding(s *stand) worker.Binding {
	endpoint := func(name string) rpc.Endpoint {
		return rpc.Endpoint{Address: "https://" + name + ".invalid:1", ID: rpctest.ServiceID(name)}
	}
	return worker.Binding{
		Envelope: s.Envelope(), ConversationID: "conversation-1",
		Expected: worker.Ready{HarnessID: "native", AdapterVersion: "1.2.3", ImageDigest: "sha256:" + strings.Repeat("0", 64), BootNonce: "nonce"},
		Agent: worker.Agent{
			ID: "demo", Version: 2, Name: "Demo", HarnessOptions: []byte(`{"a":1}`), Prompt: "Be kind.",
			Model: worker.Model{Alias: "small", MaxOutputTokens: 3, Wire: "gemini", ContextTokens: 9, Images: true, Documents: true},
		},
		Interrupts:   worker.InterruptPolicy{FormInput: true, ToolApproval: true},
		Middleware:   []worker.Middleware{{Name: "redact", Options: []byte(`{"b":2}`)}},
		MemoryScopes: []string{"user"},
		Skills:       []worker.ManifestFile{{Path: "s/SKILL.md", Handle: "h.0", Size: 8, SHA256: [32]byte{1}, MIMEType: "text/markdown"}},
		Files:        []worker.ManifestFile{{Path: "f", Handle: "h.1", SHA256: [32]byte{2}}},
		Tools:        []worker.Tool{{ID: "fs.read", OfferedName: "fs_read", Description: "reads", InputSchema: []byte(`{}`), ApprovalRequired: true, ReadOnly: true}},
		Endpoints: worker.Endpoints{
			ToolBroker: endpoint("toolbroker"), ThreadState: endpoint("statefacade"), Memory: endpoint("memory"),
			FileBroker: endpoint("filebroker"), ModelProxy: endpoint("modelproxy"),
		},
		Limits: worker.Limits{MaxModelCalls: 4, MaxToolCalls: 5, MaxStateBytes: 6, ShutdownGrace: 7 * time.Second},
		Tokens: []worker.Token{{Audience: "memory", Token: "m", ID: "not sent"}, {Audience: "model-proxy", Token: "p"}},
	}
}

func TestBind(t *testing.T) {
	var got *workerv1.BindRequest
	s := openFake(t, &fake{bind: func(ctx context.Context, r *workerv1.BindRequest) (*workerv1.BindResponse, error) {
		if a := authorization(ctx); a != "Bearer the-token" {
			t.Errorf("authorization is %q", a)
		}
		got = r
		e := r.GetEnvelope()
		return &workerv1.BindResponse{BindingId: e.GetBindingId(), Epoch: e.GetEpoch(), LeaseGeneration: e.GetLeaseGeneration(), BootNonce: "nonce"}, nil
	}})
	b := binding(s)
	must(t, s.client.Bind(bounded(t), "the-token", b))
	endpoint := func(name string) *workerv1.Endpoint {
		return &workerv1.Endpoint{Address: "https://" + name + ".invalid:1", SpiffeId: rpctest.ServiceID(name).String()}
	}
	want := &workerv1.BindRequest{
		Envelope: b.Envelope.Proto(), ConversationId: "conversation-1",
		Expected:        &workerv1.ExpectedWorker{HarnessId: "native", AdapterVersion: "1.2.3", WorkerImageDigest: b.Expected.ImageDigest, BootNonce: "nonce"},
		Agent:           &workerv1.Agent{AgentId: "demo", Version: 2, Name: "Demo", HarnessOptions: []byte(`{"a":1}`)},
		Model:           &workerv1.Model{Alias: "small", MaxOutputTokens: 3, Wire: "gemini", ContextTokens: 9, Images: true, Documents: true},
		Prompt:          "Be kind.",
		Tools:           []*workerv1.Tool{{ToolId: "fs.read", OfferedName: "fs_read", Description: "reads", InputSchema: []byte(`{}`), ApprovalRequired: true, ReadOnly: true}},
		ContractVersion: 1,
		Interrupts:      &workerv1.InterruptPolicy{FormInput: true, ToolApproval: true},
		Middleware:      []*workerv1.Middleware{{Name: "redact", Options: []byte(`{"b":2}`)}},
		MemoryScopes:    []string{"user"},
		Skills:          []*workerv1.ManifestFile{{Path: "s/SKILL.md", Handle: "h.0", Size: 8, Sha256: append([]byte{1}, make([]byte, 31)...), MimeType: "text/markdown"}},
		Files:           []*workerv1.ManifestFile{{Path: "f", Handle: "h.1", Sha256: append([]byte{2}, make([]byte, 31)...)}},
		Endpoints: &workerv1.Endpoints{
			ToolBroker: endpoint("toolbroker"), ThreadState: endpoint("statefacade"), Memory: endpoint("memory"),
			FileBroker: endpoint("filebroker"), ModelProxy: endpoint("modelproxy"),
		},
		Limits: &workerv1.Limits{MaxModelCalls: 4, MaxToolCalls: 5, MaxStateBytes: 6, ShutdownGrace: durationpb.New(7 * time.Second)},
		Tokens: []*workerv1.CallToken{{Audience: "memory", Token: "m"}, {Audience: "model-proxy", Token: "p"}},
	}
	if !proto.Equal(got, want) {
		t.Errorf("sent %v\nwant %v", got, want)
	}
}

// A worker that repeats another binding than the one that it was given is not
// bound to it.
func TestBindIsRepeatedExactly(t *testing.T) {
	for name, change := range map[string]func(*workerv1.BindResponse){
		"binding":    func(r *workerv1.BindResponse) { r.BindingId = "hs_other" },
		"epoch":      func(r *workerv1.BindResponse) { r.Epoch++ },
		"generation": func(r *workerv1.BindResponse) { r.LeaseGeneration-- },
		"nonce":      func(r *workerv1.BindResponse) { r.BootNonce = "" },
		"nothing":    func(r *workerv1.BindResponse) { proto.Reset(r) },
	} {
		s := openFake(t, &fake{bind: func(_ context.Context, r *workerv1.BindRequest) (*workerv1.BindResponse, error) {
			e := r.GetEnvelope()
			out := &workerv1.BindResponse{BindingId: e.GetBindingId(), Epoch: e.GetEpoch(), LeaseGeneration: e.GetLeaseGeneration(), BootNonce: "nonce"}
			change(out)
			return out, nil
		}})
		if err := s.client.Bind(bounded(t), "token", binding(s)); !fault.Is(err, fault.BindingConflict) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestCancel(t *testing.T) {
	s := openFake(t, &fake{cancel: func(ctx context.Context, r *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
		if a := authorization(ctx); a != "Bearer lifecycle" || r.GetReason() != "deadline" || r.GetEnvelope().GetRunId() != rpctest.RunID {
			t.Errorf("cancel with %q: %v", a, r)
		}
		return &workerv1.CancelRunResponse{Active: true, Stopped: true}, nil
	}})
	got, err := s.client.Cancel(bounded(t), "lifecycle", s.Envelope(), "deadline")
	if err != nil || (got != worker.Cancelled{Active: true, Stopped: true}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// calls are all that is asked of a worker.
func calls(s *stand, c worker.Client) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"ready": func(ctx context.Context) error { _, err := c.Ready(ctx); return err },
		"bind":  func(ctx context.Context) error { return c.Bind(ctx, "token", binding(s)) },
		"cancel": func(ctx context.Context) error {
			_, err := c.Cancel(ctx, "token", s.Envelope(), "deadline")
			return err
		},
		"start": func(ctx context.Context) error {
			stream, err := c.Start(ctx, "token", s.turn())
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }()
			_, err = stream.Next()
			return err
		},
	}
}

// An address that was used again leads to another identity: nobody is asked
// anything there, and no token gets there.
func TestAnotherIdentityAtTheAddress(t *testing.T) {
	reached := false
	s := open(t, func(*rpctest.Stand) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
	})
	for name, in := range map[string]sandbox.Instance{
		"another sandbox": {ID: s.Domain.Sandbox("instance-3"), Address: s.instance.Address},
		"a service":       {ID: rpctest.ServiceID("worker"), Address: s.instance.Address},
		"the own one":     {ID: rpctest.ServiceID("controlplane"), Address: s.instance.Address},
		"none":            {Address: s.instance.Address},
	} {
		for op, call := range calls(s, s.dial(t, in)) {
			if err := call(bounded(t)); !fault.Is(err, fault.DependencyUnavailable) {
				t.Errorf("expected %s, %s: %v", name, op, err)
			}
		}
	}
	if reached {
		t.Error("a request got through")
	}
}

// What a worker says is what arrives.
func TestFaultsArrive(t *testing.T) {
	for _, code := range []fault.Code{fault.StaleLease, fault.BindingConflict, fault.WorkerMismatch, fault.SandboxNotReady, fault.HarnessOptionsInvalid, fault.RequestTooLarge, fault.Internal} {
		refuse := fault.New(code, "test", fault.Detail("field: rule"))
		s := openFake(t, &fake{
			ready: func(context.Context) (*workerv1.ReadyResponse, error) { return nil, refuse },
			bind:  func(context.Context, *workerv1.BindRequest) (*workerv1.BindResponse, error) { return nil, refuse },
			cancel: func(context.Context, *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
				return nil, refuse
			},
			start: func(context.Context, *workerv1.StartRunRequest, workerv1connect.WorkerServiceStartRunServerStream) error {
				return refuse
			},
		})
		for op, call := range calls(s, s.client) {
			err := call(bounded(t))
			if !fault.Is(err, code) || fault.From(err, "").Detail() != "field: rule" {
				t.Errorf("%s, %s: %v", code, op, err)
			}
		}
	}
}

// A worker that is not there is a dependency that does not answer.
func TestNobodyThere(t *testing.T) {
	s := openFake(t, &fake{})
	c := s.dial(t, sandbox.Instance{ID: rpctest.SandboxID(), Address: "unix:///nonexistent/worker.sock"})
	for op, call := range calls(s, c) {
		if err := call(bounded(t)); !fault.Is(err, fault.DependencyUnavailable) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// A worker that was killed in the middle of a call has not cancelled it.
func TestAConnectionThatIsReset(t *testing.T) {
	s := openFake(t, &fake{})
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	type connKey struct{}
	server := service.HTTPServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*tls.Conn); ok {
			if tc, ok := c.NetConn().(*net.TCPConn); ok {
				_ = tc.SetLinger(0) // closing resets
				_ = tc.Close()
			}
		}
	}), s.Logger)
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	cfg := identity.ServerTLS(s.Source(t, rpctest.SandboxID()), identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))})
	served := make(chan error, 1)
	go func() { served <- server.Serve(tls.NewListener(l, cfg)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	in := s.instance
	in.Address = "https://" + l.Addr().String()
	for op, call := range calls(s, s.dial(t, in)) {
		for range 5 {
			if err := call(bounded(t)); !fault.Is(err, fault.DependencyUnavailable) {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
}

// The time of a call is that of its context.
func TestADeafWorker(t *testing.T) {
	s := open(t, func(*rpctest.Stand) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	})
	for op, call := range calls(s, s.client) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(ctx); !fault.Is(err, fault.DeadlineExceeded) {
			t.Errorf("%s: %v", op, err)
		}
		cancel()
	}
}
