package chaosreplicas_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/chaosreplicas"
	"cofferdam.dev/tests/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Eight seconds; `make chaos-replicas DURATION=10m` is the full size.
func TestThreeReplicasInChaos(t *testing.T) {
	r, err := chaosreplicas.Run(t.Context(), chaosreplicas.Config{Command: stack.Need(t), Folder: t.TempDir(), Duration: 8 * time.Second, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	if err := r.Verdict(); err != nil {
		t.Error(err)
	}
}
