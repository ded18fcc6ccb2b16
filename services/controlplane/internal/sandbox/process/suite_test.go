package process

import (
	"syscall"
	"testing"

	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/sandbox/sandboxtest"
)

func TestProvider(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.World {
		return sandboxtest.World{
			Provider: start(t, "patient"), Claim: claim(""),
			Kill: func(t *testing.T, in sandbox.Instance) {
				t.Helper()
				if err := syscall.Kill(in.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
