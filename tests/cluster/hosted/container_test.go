//go:build cluster

package hosted

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/internal/apiclient"
)

func isType(typ string) func(apiclient.Event) bool {
	return func(e apiclient.Event) bool { return e.Type == typ }
}

// process is process 1 of a container, as its node counts.
func process(t *testing.T, i *installation.Installation, pod *corev1.Pod, container string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(i.Cluster.Node(t, "bash", "-c",
		`"$CLUSTER_BIN/ctr" -n k8s.io tasks ls | awk -v id="$0" '$1 == id {print $2}'`, containerID(t, pod, container))))
	if err != nil {
		t.Fatalf("container %s: %v", container, err)
	}
	return pid
}

// kill ends a container as a crash does.
func kill(t *testing.T, i *installation.Installation, pod *corev1.Pod, container string) {
	t.Helper()
	i.Cluster.Node(t, "bash", "-c", `"$CLUSTER_BIN/ctr" -n k8s.io tasks kill --signal SIGKILL "$0"`, containerID(t, pod, container))
}

func containerID(t *testing.T, pod *corev1.Pod, container string) string {
	t.Helper()
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return strings.TrimPrefix(s.ContainerID, "containerd://")
		}
	}
	t.Fatalf("pod %s has no container %s", pod.Name, container)
	return ""
}
