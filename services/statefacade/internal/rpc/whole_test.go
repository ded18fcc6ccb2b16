package rpc_test

import (
	"path/filepath"
	"testing"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/statefacade"
	"cofferdam.dev/services/statefacade/internal/rpc"
)

// The service as its command makes it: records, snapshots and memory in one
// file, and keys that it asks the capability service for.
func TestOneFileAndRemoteKeys(t *testing.T) {
	stand := rpctest.NewStand(t)
	self, issuer := rpctest.ServiceID("statefacade"), rpctest.ServiceID("capability")
	jwks := stand.Serve(t, rpctest.Service{Handler: stand.Minter, ID: issuer, Allow: identity.AllowList{identity.Exactly(self)}})
	cfg := &statefacade.Config{
		Store: stand.StorePath, StateStore: stand.StorePath, BlobURL: "file://" + filepath.Join(t.TempDir(), "snapshots"), SweepInterval: time.Minute,
		CapabilityURL: jwks, CapabilityID: issuer.String(), Issuer: stand.Minter.Issuer(),
	}
	svc, err := statefacade.New(t.Context(), cfg, stand.Runtime(t, &cfg.Base, self), statefacade.Deps{})
	must(t, err)
	t.Cleanup(func() { must(t, svc.Close()) })

	baseURL := stand.Serve(t, rpctest.Service{Handler: svc.Handler(), ID: self, Allow: rpc.Callers(stand.Domain.TrustDomain())})
	c := stand.Dial(t, baseURL, self, rpctest.SandboxID())
	s := &session{
		opened: &opened{stand: stand, path: stand.StorePath}, audience: capability.ThreadState,
		thread: threadstatev1connect.NewThreadStateServiceClient(c.RPC), memory: memoryv1connect.NewMemoryServiceClient(c.RPC),
	}
	ref, err := s.write(t, "key", "state")
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
	s.wantHead(t, 1, "state")
	stand.EndRun(t)
	stand.StartRun(t, "run_after_that")
	s.audience, s.scopes = capability.Memory, []string{"user"}
	_, err = s.put(t, "key", "content", nil)
	must(t, err)
	s.wantMemory(t, "key", 1, "content")
}
