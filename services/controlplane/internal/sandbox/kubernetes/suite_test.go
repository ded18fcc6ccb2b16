package kubernetes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/sandbox/sandboxtest"
)

func TestProvider(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.World {
		c := newCluster(t)
		return sandboxtest.World{
			Provider: c.provider(), Claim: claimOf(""),
			Kill: func(_ *testing.T, in sandbox.Instance) {
				c.pod(strings.Replace(in.UID, "pod-", "pool-", 1), func(*corev1.Pod) bool { return false })
			},
		}
	})
}
