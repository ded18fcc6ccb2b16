package filebroker

import (
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A service that cannot open all of its stores leaves none of them open.
func TestNewThatFailsLeavesNothingBehind(t *testing.T) {
	stand := rpctest.NewStand(t)
	rt := &service.Runtime{Logger: stand.Logger, Telemetry: stand.Telemetry, TrustDomain: stand.Domain.TrustDomain(), Source: stand.Source(t, rpctest.ServiceID("filebroker"))}
	_, err := New(t.Context(), &Config{Store: stand.StorePath, HandleStore: stand.StorePath, BlobURL: "s3://bucket", Issuer: "issuer"}, rt, Deps{Keys: stand.Minter.Keys()})
	if err == nil {
		t.Error("a bucket of an unknown kind was opened")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
