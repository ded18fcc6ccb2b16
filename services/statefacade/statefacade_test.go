package statefacade

import (
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/rpc/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A service that cannot open all of its stores leaves none of them open.
func TestNewThatFailsLeavesNothingBehind(t *testing.T) {
	stand := rpctest.NewStand(t)
	cfg := &Config{Store: stand.StorePath, StateStore: t.TempDir(), Issuer: "issuer"}
	_, err := New(t.Context(), cfg, stand.Runtime(t, &cfg.Base, rpctest.ServiceID("statefacade")), Deps{Keys: stand.Minter.Keys()})
	if err == nil {
		t.Error("a folder was opened as a file")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
