// Package rpc serves the worker's operations on Connect and on the HTTP routes
// of the Sandbox Worker Protocol v1, with the same handlers behind both.
package rpc

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
)

// maxBindBytes bounds the construction data; its parts have bounds of their own.
const maxBindBytes = 8 << 20

// policies are the worker's door. Only the control plane may call, and but for
// ready it shows a capability whose subject is this very sandbox.
type policies struct {
	ready, bind, run, lease rpc.Policy
}

func newPolicies(controlplane, self spiffeid.ID) policies {
	callers := identity.AllowList{identity.Exactly(controlplane)}
	with := func(mode rpc.FenceMode, maxBytes int) rpc.Policy {
		return rpc.Policy{Callers: callers, Audience: capability.HarnessWorker, Subject: self, Fence: mode, MaxBytes: maxBytes}
	}
	return policies{
		ready: rpc.Policy{Callers: callers},
		// An unbound worker has no committed state; the session compares.
		bind: with(rpc.NoFence, maxBindBytes),
		// What a worker is bound to is a lease; the session knows the run.
		run:   with(rpc.LeaseFence, 0),
		lease: with(rpc.LeaseFence, 0),
	}
}

func (p policies) procedures() map[string]rpc.Policy {
	return map[string]rpc.Policy{
		workerv1connect.WorkerServiceReadyProcedure:        p.ready,
		workerv1connect.WorkerServiceBindProcedure:         p.bind,
		workerv1connect.WorkerServiceStartRunProcedure:     p.run,
		workerv1connect.WorkerServiceResumeRunProcedure:    p.run,
		workerv1connect.WorkerServiceCancelRunProcedure:    p.lease,
		workerv1connect.WorkerServiceGetInterruptProcedure: p.lease,
		workerv1connect.WorkerServiceShutdownProcedure:     p.lease,
	}
}
