//go:build cluster

package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

const (
	// disks are more than the test needs: the component's own pool takes one.
	disks = 6
)

// TestDisk is the profile with a disk: the disk is of one binding, the next one gets another and sees nothing of it, a link
// on it leads nowhere, it goes with its claim, and what a conversation knows comes from the committed head all the same.
func TestDisk(t *testing.T) {
	i := theInstallation(t)
	folder := localDisks(t, i)
	scriptedTemplate(t, i, "native-disk", disk, nil)

	first := i.Talk(t, disk)
	r := first.Tell(t, plays(t, step{"do": "remember", "key": "k", "text": "from the head"}, step{"do": "probe", "what": "write", "target": "/workspace/canary"}))
	if !strings.Contains(r.Text(), "probe write /workspace/canary: ok") {
		t.Fatalf("the disk cannot be written: %s", r)
	}
	seat := i.Seat(t, r.BindingID)
	volume, at := diskOf(t, i, seat, folder)
	i.Cluster.Node(t, "bash", "-c", `test -s "$0"`, filepath.Join(at, "canary"))

	// Another binding, while the first one lives.
	second := i.Talk(t, disk)
	b := second.Tell(t, plays(t, step{"do": "probe", "what": "list", "target": "/workspace"}, step{"do": "probe", "what": "write", "target": "/workspace/own"}))
	if strings.Contains(b.Text(), "canary") {
		t.Errorf("the second binding sees the first one's disk: %s", b)
	}
	other, beside := diskOf(t, i, i.Seat(t, b.BindingID), folder)
	if other == volume || beside == at {
		t.Fatalf("both have the disk %s", volume)
	}

	// Links on the disk, of a kind that a program inside could have made, to what is the node's and the neighbour's there.
	i.Cluster.Node(t, "bash", "-c", `cd "$0" && ln -s "$1" neighbour && ln -s /var/lib/kubelet/pods pods && ln -s ../../../../../.. up && ln -s /proc/1/root root`, beside, filepath.Join(at, "canary"))
	probes := map[string]string{
		"read /workspace/neighbour":                         "ENOENT",
		"list /workspace/pods":                              "ENOENT",
		"list /workspace/up/var/lib/kubelet":                "ENOENT",
		"list /workspace/root" + folder:                     "",
		"read " + filepath.Join(at, "canary"):               "ENOENT",
		"write /workspace/neighbour":                        "ENOENT",
		"read /workspace/../" + filepath.Join(at, "canary"): "ENOENT",
	}
	for probe, want := range probes {
		what, target, _ := strings.Cut(probe, " ")
		said := second.Tell(t, plays(t, step{"do": "probe", "what": what, "target": target})).Text()
		if strings.Contains(said, ": ok") || !strings.Contains(said, want) {
			t.Errorf("%s: it says %q, want it refused", probe, said)
		}
	}

	// The first one's sandbox is lost: the next has a disk that begins empty, and the thread is what was committed.
	i.DeletePod(t, seat)
	again := first.Tell(t, plays(t, step{"do": "recall"}, step{"do": "probe", "what": "read", "target": "/workspace/canary"}))
	if text := again.Text(); !strings.Contains(text, "from the head") || !strings.Contains(text, "probe read /workspace/canary: ENOENT") {
		t.Errorf("after its sandbox was lost: %s", again)
	}
	if next, _ := diskOf(t, i, i.Seat(t, again.BindingID), folder); next == volume || next == other {
		t.Errorf("it was given the disk %s again", next)
	}

	// What was given back is nobody's: its claim of a volume is gone, and no other is ever bound to it.
	kube.Eventually(t, "the end of the first disk's claim", func(ctx context.Context) error {
		pv, err := i.Cluster.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pv.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("%s is %s", volume, pv.Status.Phase)
		}
		_, err = i.Cluster.Client.CoreV1().PersistentVolumeClaims(installation.Sandboxes).Get(ctx, pv.Spec.ClaimRef.Name, metav1.GetOptions{})
		if err == nil {
			return errors.New("its claim is there")
		}
		return nil
	})
}

// localDisks makes a class and some volumes of it, each a folder of the node, and gives the folder that has them.
func localDisks(t *testing.T, i *installation.Installation) string {
	t.Helper()
	folder := strings.TrimSpace(i.Cluster.Node(t, "bash", "-c", `mkdir -p "$CLUSTER_STATE/node/disks" && cd "$CLUSTER_STATE/node/disks" && pwd -P`))
	manifests := `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: ` + storageClass + `}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
`
	for n := range disks {
		path := filepath.Join(folder, fmt.Sprint(n))
		i.Cluster.Node(t, "mkdir", path)
		manifests += fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk-%d}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOncePod]
  storageClassName: %s
  persistentVolumeReclaimPolicy: Retain
  local: {path: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]}]}}
`, n, storageClass, path)
	}
	i.Cluster.MustApply(t, "", manifests)
	return folder
}

// diskOf is the volume of a seat, and where it lies in the node.
func diskOf(t *testing.T, i *installation.Installation, s installation.Seat, folder string) (volume, path string) {
	t.Helper()
	for _, v := range s.Pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := i.Cluster.Client.CoreV1().PersistentVolumeClaims(installation.Sandboxes).Get(t.Context(), v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if class := claim.Spec.StorageClassName; class == nil || *class != storageClass || len(claim.Spec.AccessModes) != 1 || claim.Spec.AccessModes[0] != corev1.ReadWriteOncePod {
			t.Errorf("the disk's claim is %+v", claim.Spec)
		}
		return claim.Spec.VolumeName, filepath.Join(folder, strings.TrimPrefix(claim.Spec.VolumeName, "disk-"))
	}
	t.Fatalf("pod %s has no disk", s.Pod.Name)
	return "", ""
}
