package rpc_test

import (
	"path/filepath"
	"testing"

	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/filebroker"
	"cofferdam.dev/services/filebroker/internal/rpc"
)

// The service as its command makes it: records and catalogue in one file, and
// keys that it asks the capability service for.
func TestOneFileAndRemoteKeys(t *testing.T) {
	stand := rpctest.NewStand(t)
	self, issuer := rpctest.ServiceID("filebroker"), rpctest.ServiceID("capability")
	jwks := stand.Serve(t, rpctest.Service{Handler: stand.Minter, ID: issuer, Allow: identity.AllowList{identity.Exactly(self)}})
	dir := filepath.Join(t.TempDir(), "files")
	cfg := &filebroker.Config{
		Store: stand.StorePath, HandleStore: stand.StorePath, BlobURL: "file://" + dir, QuotaBytes: quotaOfTests,
		CapabilityURL: jwks, CapabilityID: issuer.String(), Issuer: stand.Minter.Issuer(),
	}
	svc, err := filebroker.New(t.Context(), cfg, stand.Runtime(t, &cfg.Base, self), filebroker.Deps{})
	must(t, err)
	t.Cleanup(func() { must(t, svc.Close()) })

	baseURL := stand.Serve(t, rpctest.Service{Handler: svc.Handler(), ID: self, Allow: rpc.Callers(stand.Domain.TrustDomain())})
	s := &session{
		opened:  &opened{stand: stand, dir: dir},
		control: filebrokerv1connect.NewFileBrokerServiceClient(stand.Dial(t, baseURL, self, rpctest.ServiceID("controlplane")).RPC),
		sandbox: filebrokerv1connect.NewFileBrokerServiceClient(stand.Dial(t, baseURL, self, rpctest.SandboxID()).RPC),
	}
	handle := s.uploadHandle(t, 100)
	e := stand.Envelope()
	res, err := upload(s.ctx(t, e, handle), s.sandbox, e, handle, info("content"), "content")
	must(t, err)
	s.wantContent(t, res.GetObjectId(), "content")
}
