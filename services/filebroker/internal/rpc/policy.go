package rpc

import (
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
)

// wireOverhead is what a message may have besides its chunk.
const wireOverhead = 64 << 10

// Callers may open a connection: the control plane, sandboxes and ToolBroker, and
// nobody else.
func Callers(td spiffeid.TrustDomain) identity.AllowList {
	return slices.Concat(controlPlane(td), sandboxes(td), toolBroker(td))
}

func controlPlane(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.Exactly(identity.Service(td, "controlplane"))}
}

func sandboxes(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.AnySandbox(td)}
}

func toolBroker(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.Exactly(identity.Service(td, "toolbroker"))}
}

// Policies of every procedure. The control plane stores and issues as itself; a
// sandbox moves files with a capability that lists its handles; ToolBroker stores
// a result for a sandbox, with a capability that it got in exchange for the
// sandbox's. None may do what another does.
func Policies(td spiffeid.TrustDomain) map[string]rpc.Policy {
	const part = blob.MaxChunkBytes + wireOverhead
	return map[string]rpc.Policy{
		filebrokerv1connect.FileBrokerServicePutObjectProcedure:   {Callers: controlPlane(td), Fence: rpc.RunFence, MaxBytes: part},
		filebrokerv1connect.FileBrokerServicePutResultProcedure:   {Callers: toolBroker(td), Audience: capability.FileBroker, Fence: rpc.RunFence, MaxBytes: part},
		filebrokerv1connect.FileBrokerServiceIssueHandleProcedure: {Callers: controlPlane(td), Fence: rpc.RunFence, MaxBytes: wireOverhead},
		filebrokerv1connect.FileBrokerServicePutFileProcedure:     {Callers: controlPlane(td), Fence: rpc.LeaseFence, MaxBytes: part},
		// What agents have belongs to no binding, and is what its SHA-256 says, whoever puts it.
		filebrokerv1connect.FileBrokerServicePutContentProcedure:  {Callers: controlPlane(td), Fence: rpc.NoFence, MaxBytes: part},
		filebrokerv1connect.FileBrokerServiceKeepContentProcedure: {Callers: controlPlane(td), Fence: rpc.NoFence, MaxBytes: wireOverhead},
		// A caller reads files of runs that are over, when there may be no lease.
		filebrokerv1connect.FileBrokerServiceStatObjectProcedure:     {Callers: controlPlane(td), Fence: rpc.NoFence, MaxBytes: wireOverhead},
		filebrokerv1connect.FileBrokerServiceReadObjectProcedure:     {Callers: controlPlane(td), Fence: rpc.NoFence, MaxBytes: wireOverhead},
		filebrokerv1connect.FileBrokerServiceDownloadProcedure:       {Callers: sandboxes(td), Audience: capability.FileBroker, Fence: rpc.RunFence, MaxBytes: wireOverhead},
		filebrokerv1connect.FileBrokerServiceUploadProcedure:         {Callers: sandboxes(td), Audience: capability.FileBroker, Fence: rpc.RunFence, MaxBytes: part},
		filebrokerv1connect.FileBrokerServiceUploadPartProcedure:     {Callers: sandboxes(td), Audience: capability.FileBroker, Fence: rpc.RunFence, MaxBytes: part},
		filebrokerv1connect.FileBrokerServiceUploadStatusProcedure:   {Callers: sandboxes(td), Audience: capability.FileBroker, Fence: rpc.RunFence, MaxBytes: wireOverhead},
		filebrokerv1connect.FileBrokerServiceCompleteUploadProcedure: {Callers: sandboxes(td), Audience: capability.FileBroker, Fence: rpc.RunFence, MaxBytes: wireOverhead},
	}
}
