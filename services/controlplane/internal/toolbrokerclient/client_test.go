package toolbrokerclient_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/toolbrokerclient"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fake func(*toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error)

func (f fake) ListTools(_ context.Context, r *toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
	return f(r)
}

func (fake) CallTool(context.Context, *toolbrokerv1.CallToolRequest) (*toolbrokerv1.CallToolResponse, error) {
	return nil, fault.New(fault.NotImplemented, "test")
}

func (fake) StreamTool(context.Context, *toolbrokerv1.StreamToolRequest, toolbrokerv1connect.ToolBrokerServiceStreamToolServerStream) error {
	return fault.New(fault.NotImplemented, "test")
}

func open(t *testing.T, as string, f fake) *toolbrokerclient.Client {
	t.Helper()
	s := rpctest.NewStand(t)
	allow := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}
	server := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		toolbrokerv1connect.ToolBrokerServiceListToolsProcedure: {Callers: allow},
	}, toolbrokerv1.File_harness_toolbroker_v1_toolbroker_proto))
	toolbrokerv1connect.RegisterToolBrokerServiceHandler(server.Connect(), f)
	h, err := server.Handler()
	if err != nil {
		t.Fatal(err)
	}
	url := s.Serve(t, rpctest.Service{Handler: h, ID: rpctest.ServiceID(as), Allow: allow})
	return toolbrokerclient.New(s.Dial(t, url, rpctest.ServiceID("toolbroker"), rpctest.ServiceID("controlplane")).RPC)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestListTools(t *testing.T) {
	var got *toolbrokerv1.ListToolsRequest
	c := open(t, "toolbroker", func(r *toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
		got = r
		return &toolbrokerv1.ListToolsResponse{
			Tools: []*toolbrokerv1.ToolDescriptor{
				{ToolId: "fs.read", OfferedName: "fs_read", Description: "reads", InputSchema: []byte(`{"type":"object"}`), ReadOnly: true},
				{ToolId: "fs.list", OfferedName: "fs_list", InputSchema: []byte(`{}`), ApprovalRequired: true},
			},
			Unavailable: []*toolbrokerv1.UnavailableTool{{ToolId: "web.get", Code: "tool_unavailable"}},
		}, nil
	})
	tools, unavailable, err := c.ListTools(bounded(t), []string{"fs.*", "web.get"})
	want := []worker.Tool{
		{ID: "fs.read", OfferedName: "fs_read", Description: "reads", InputSchema: []byte(`{"type":"object"}`), ReadOnly: true},
		{ID: "fs.list", OfferedName: "fs_list", InputSchema: []byte(`{}`), ApprovalRequired: true},
	}
	if err != nil || !reflect.DeepEqual(tools, want) || !reflect.DeepEqual(unavailable, []string{"web.get"}) {
		t.Errorf("%+v, %v, %v", tools, unavailable, err)
	}
	if !proto.Equal(got, &toolbrokerv1.ListToolsRequest{ToolIds: []string{"fs.*", "web.get"}}) {
		t.Errorf("asked %v", got)
	}
}

func TestFailures(t *testing.T) {
	refuse := func(*toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
		return nil, fault.New(fault.ToolUnavailable, "test")
	}
	if tools, _, err := open(t, "toolbroker", refuse).ListTools(bounded(t), []string{"fs.*"}); !fault.Is(err, fault.ToolUnavailable) || tools != nil {
		t.Errorf("%v, %v", tools, err)
	}
	// A descriptor from another service would be a tool from nowhere.
	if tools, _, err := open(t, "modelproxy", refuse).ListTools(bounded(t), []string{"fs.*"}); !fault.Is(err, fault.DependencyUnavailable) || tools != nil {
		t.Errorf("another service: %v, %v", tools, err)
	}
}
