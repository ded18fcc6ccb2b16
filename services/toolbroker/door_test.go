package toolbroker

import (
	"context"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

func openDoor(t *testing.T, s *rpctest.Stand) rpctest.Service {
	t.Helper()
	return open(t, s).served()
}

// callDoor calls a tool that has an effect, so that its State shows whether the
// tool was called.
func callDoor() rpctest.Door {
	return rpctest.Door{
		Procedure: toolbrokerv1connect.ToolBrokerServiceCallToolProcedure,
		Audience:  capability.ToolBroker,
		Fence:     rpc.RunFence,
		Changes:   true,
		Others:    []spiffeid.ID{rpctest.ServiceID("controlplane")},
		Scope:     func(c *capability.Claims) { c.Tools = []string{"x.count"} },
		Open:      openDoor,
		Call: func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
			_, err := toolbrokerv1connect.NewToolBrokerServiceClient(c.RPC).CallTool(ctx, request(e, "x.count", `{}`))
			return err
		},
	}
}

func TestDoor(t *testing.T) {
	callDoor().Run(t)
	rpctest.Door{
		Procedure:     toolbrokerv1connect.ToolBrokerServiceListToolsProcedure,
		Caller:        rpctest.ServiceID("controlplane"),
		Others:        []spiffeid.ID{rpctest.SandboxID()},
		Fence:         rpc.NoFence,
		NoFenceReason: "it describes the catalogue, for no run, and changes nothing",
		Open:          openDoor,
		Call: func(ctx context.Context, c *rpctest.Client, _ fence.Envelope) error {
			_, err := toolbrokerv1connect.NewToolBrokerServiceClient(c.RPC).ListTools(ctx, &toolbrokerv1.ListToolsRequest{ToolIds: []string{"x.*"}})
			return err
		},
	}.Run(t)
}

// TestLeaseReplacedBetweenAdmissionAndWrite is the fence test of this service:
// the lease is replaced after the door and before the key is admitted.
func TestLeaseReplacedBetweenAdmissionAndWrite(t *testing.T) { callDoor().Race(t) }
