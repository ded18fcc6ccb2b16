package rpc

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
)

// wireOverhead is what a message may have besides its payload.
const wireOverhead = 64 << 10

// Callers may open a connection: sandboxes, and nobody else.
func Callers(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.AnySandbox(td)}
}

// Policies of every procedure. All are for sandboxes, within a committed run;
// the two services have two audiences, so that a token for one opens nothing of
// the other.
func Policies(td spiffeid.TrustDomain) map[string]rpc.Policy {
	thread := rpc.Policy{Callers: Callers(td), Audience: capability.ThreadState, Fence: rpc.RunFence, MaxBytes: wireOverhead}
	snapshot := thread
	snapshot.MaxBytes = blob.MaxChunkBytes + wireOverhead
	memory := rpc.Policy{Callers: Callers(td), Audience: capability.Memory, Fence: rpc.RunFence, MaxBytes: 2 * wireOverhead}
	return map[string]rpc.Policy{
		threadstatev1connect.ThreadStateServiceLoadHeadProcedure:      thread,
		threadstatev1connect.ThreadStateServiceWriteSnapshotProcedure: snapshot,
		threadstatev1connect.ThreadStateServiceCommitHeadProcedure:    thread,
		threadstatev1connect.ThreadStateServiceMarkUncertainProcedure: thread,
		memoryv1connect.MemoryServiceGetProcedure:                     memory,
		memoryv1connect.MemoryServiceSearchProcedure:                  memory,
		memoryv1connect.MemoryServicePutProcedure:                     memory,
		memoryv1connect.MemoryServiceDeleteProcedure:                  memory,
	}
}
