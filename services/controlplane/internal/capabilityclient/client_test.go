package capabilityclient_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/capabilityclient"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fake func(context.Context, *capabilityv1.MintRequest) (*capabilityv1.MintResponse, error)

func (f fake) Mint(ctx context.Context, r *capabilityv1.MintRequest) (*capabilityv1.MintResponse, error) {
	return f(ctx, r)
}

// Exchange is not for the control plane.
func (fake) Exchange(context.Context, *capabilityv1.ExchangeRequest) (*capabilityv1.ExchangeResponse, error) {
	return nil, errors.New("not asked for here")
}

// Assert is not for the control plane, either.
func (fake) Assert(context.Context, *capabilityv1.AssertRequest) (*capabilityv1.AssertResponse, error) {
	return nil, errors.New("not asked for here")
}

// open serves f as a service and gives the client that expects the capability
// service there.
func open(t *testing.T, as string, f fake) (*rpctest.Stand, *capabilityclient.Client) {
	t.Helper()
	s := rpctest.NewStand(t)
	allow := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}
	server := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		capabilityv1connect.CapabilityServiceMintProcedure: {Callers: allow, Fence: rpc.AnyFence},
	}, capabilityv1.File_harness_capability_v1_capability_proto))
	capabilityv1connect.RegisterCapabilityServiceHandler(server.Connect(), f)
	h, err := server.Handler()
	if err != nil {
		t.Fatal(err)
	}
	url := s.Serve(t, rpctest.Service{Handler: http.Handler(h), ID: rpctest.ServiceID(as), Allow: allow})
	c := s.Dial(t, url, rpctest.ServiceID("capability"), rpctest.ServiceID("controlplane"))
	return s, capabilityclient.New(c.RPC)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestMint(t *testing.T) {
	var got *capabilityv1.MintRequest
	s, c := open(t, "capability", func(_ context.Context, r *capabilityv1.MintRequest) (*capabilityv1.MintResponse, error) {
		got = r
		return &capabilityv1.MintResponse{Tokens: []*capabilityv1.Token{
			{Audience: "tool-broker", Token: "one", Jti: "jti-1"}, {Audience: "memory", Token: "two", Jti: "jti-2"},
		}}, nil
	})
	env := s.Envelope()
	tokens, err := c.Mint(bounded(t), env, rpctest.SandboxID().String(), "replica-1", []lease.Scope{
		{Audience: capability.ToolBroker, Tools: []string{"fs.read"}},
		{Audience: capability.Memory, Memory: []string{"user"}},
		{Audience: capability.FileBroker, Handles: []string{"h-1"}},
		{Audience: capability.ModelProxy, ModelAlias: "small"},
	})
	want := []worker.Token{{Audience: "tool-broker", Token: "one", ID: "jti-1"}, {Audience: "memory", Token: "two", ID: "jti-2"}}
	if err != nil || !reflect.DeepEqual(tokens, want) {
		t.Errorf("%+v, %v", tokens, err)
	}
	if want := (&capabilityv1.MintRequest{
		Envelope: env.Proto(), Subject: rpctest.SandboxID().String(), Owner: "replica-1",
		Scopes: []*capabilityv1.Scope{
			{Audience: "tool-broker", Tools: []string{"fs.read"}},
			{Audience: "memory", MemoryScopes: []string{"user"}},
			{Audience: "file-broker", Handles: []string{"h-1"}},
			{Audience: "model-proxy", ModelAlias: "small"},
		},
	}); !proto.Equal(got, want) {
		t.Errorf("asked %v\nwant %v", got, want)
	}
}

func TestFaultsArrive(t *testing.T) {
	for _, code := range []fault.Code{fault.StaleLease, fault.Cancelled, fault.DependencyUnavailable, fault.SandboxNotReady} {
		s, c := open(t, "capability", func(context.Context, *capabilityv1.MintRequest) (*capabilityv1.MintResponse, error) {
			return nil, fault.New(code, "test")
		})
		tokens, err := c.Mint(bounded(t), s.Envelope(), rpctest.SandboxID().String(), "replica-1", []lease.Scope{{Audience: capability.ThreadState}})
		if !fault.Is(err, code) || tokens != nil {
			t.Errorf("%s: %v, %v", code, tokens, err)
		}
	}
}

// Nobody but the capability service is asked for a capability.
func TestAnotherServiceIsNotAsked(t *testing.T) {
	s, c := open(t, "toolbroker", func(context.Context, *capabilityv1.MintRequest) (*capabilityv1.MintResponse, error) {
		t.Error("asked")
		return &capabilityv1.MintResponse{}, nil
	})
	if _, err := c.Mint(bounded(t), s.Envelope(), "subject", "", []lease.Scope{{Audience: capability.HarnessWorker}}); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("mint: %v", err)
	}
}
