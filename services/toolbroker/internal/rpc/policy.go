package rpc

import (
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
)

// wireOverhead is what a message may have besides its payload.
const wireOverhead = 64 << 10

// Callers may open a connection: sandboxes and the control plane.
func Callers(td spiffeid.TrustDomain) identity.AllowList {
	return slices.Concat(workers(td), controlPlane(td))
}

func workers(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.AnySandbox(td)}
}

func controlPlane(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.Exactly(identity.Service(td, "controlplane"))}
}

// Policies of every procedure. The control plane asks what there is, as itself;
// a sandbox calls, within a committed run. Neither may do the other's part.
func Policies(td spiffeid.TrustDomain) map[string]rpc.Policy {
	return map[string]rpc.Policy{
		toolbrokerv1connect.ToolBrokerServiceListToolsProcedure: {
			Callers: controlPlane(td), Fence: rpc.NoFence, MaxBytes: wireOverhead,
		},
		toolbrokerv1connect.ToolBrokerServiceCallToolProcedure: {
			Callers: workers(td), Audience: capability.ToolBroker, Fence: rpc.RunFence, MaxBytes: event.MaxArgumentsBytes + wireOverhead,
		},
		toolbrokerv1connect.ToolBrokerServiceStreamToolProcedure: {
			Callers: workers(td), Audience: capability.ToolBroker, Fence: rpc.RunFence, MaxBytes: event.MaxArgumentsBytes + wireOverhead,
		},
	}
}
