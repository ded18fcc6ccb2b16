package rpc_test

import (
	"context"
	"strings"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

func doors() map[string]rpctest.Door {
	thread := rpctest.Door{
		Audience: capability.ThreadState, Fence: pkgrpc.RunFence,
		Open: func(t *testing.T, s *rpctest.Stand) rpctest.Service { t.Helper(); return open(t, s).served() },
	}
	memory := thread
	memory.Audience = capability.Memory
	memory.Scope = func(c *capability.Claims) { c.MemoryScopes = []string{"user"} }

	loading := thread
	loading.Streaming = true
	loading.Procedure = threadstatev1connect.ThreadStateServiceLoadHeadProcedure
	loading.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := load(ctx, threadstatev1connect.NewThreadStateServiceClient(c.RPC), &threadstatev1.LoadHeadRequest{Envelope: e.Proto(), Codec: testCodec, Adapter: testAdapter})
		return err
	}

	write := thread
	write.Streaming = true
	write.Procedure = threadstatev1connect.ThreadStateServiceWriteSnapshotProcedure
	write.Changes = true
	write.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s)
		svc := o.served()
		svc.BeforeWrite = o.hooks.BeforeWrite // its write is not one of the record
		return svc
	}
	write.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := send(ctx, threadstatev1connect.NewThreadStateServiceClient(c.RPC), parts(e, "state")...)
		return err
	}
	large := write
	large.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := send(ctx, threadstatev1connect.NewThreadStateServiceClient(c.RPC), parts(e, strings.Repeat("state ", 1<<18))...)
		return err
	}

	commit := thread
	commit.Procedure = threadstatev1connect.ThreadStateServiceCommitHeadProcedure
	commit.Changes = true
	var ref string
	commit.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s)
		ref = o.pending(t, "state")
		return o.served()
	}
	commit.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := threadstatev1connect.NewThreadStateServiceClient(c.RPC).CommitHead(ctx, &threadstatev1.CommitHeadRequest{
			Envelope: e.Proto(), Codec: testCodec, SnapshotRef: ref,
		})
		return err
	}

	uncertain := thread
	uncertain.Procedure = threadstatev1connect.ThreadStateServiceMarkUncertainProcedure
	uncertain.Changes = true
	uncertain.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := threadstatev1connect.NewThreadStateServiceClient(c.RPC).MarkUncertain(ctx, &threadstatev1.MarkUncertainRequest{Envelope: e.Proto()})
		return err
	}

	get := memory
	get.Procedure = memoryv1connect.MemoryServiceGetProcedure
	get.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Get(ctx, &memoryv1.GetRequest{Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: "key"})
		if fault.Is(err, fault.NotFound) { // the door was passed; nothing is stored
			return nil
		}
		return err
	}

	put := memory
	put.Procedure = memoryv1connect.MemoryServicePutProcedure
	put.Changes = true
	put.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, putRequest(e.Proto(), "key", "content", nil))
		return err
	}

	search := memory
	search.Procedure = memoryv1connect.MemoryServiceSearchProcedure
	search.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Search(ctx, &memoryv1.SearchRequest{Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Query: "word"})
		return err
	}

	remove := memory
	remove.Procedure = memoryv1connect.MemoryServiceDeleteProcedure
	remove.Changes = true
	remove.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s)
		o.remembered(t, "key", "content")
		return o.served()
	}
	remove.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Delete(ctx, &memoryv1.DeleteRequest{
			Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: "key", ExpectedRevision: 1,
		})
		return err
	}
	return map[string]rpctest.Door{
		"search": search, "delete": remove, "load": loading, "write large": large, "write": write, "commit": commit, "uncertain": uncertain, "get": get, "put": put,
	}
}

func TestDoor(t *testing.T) {
	for _, d := range doors() {
		d.Run(t)
	}
}

// TestLeaseReplacedBetweenAdmissionAndWrite is the fence test of this service.
func TestLeaseReplacedBetweenAdmissionAndWrite(t *testing.T) {
	for _, name := range []string{"write", "write large", "commit", "put", "delete"} {
		doors()[name].Race(t)
	}
}
