//go:build cluster

package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/gate"
	"cofferdam.dev/tests/internal/impostor"
)

// Installation is one that is ready.
type Installation struct {
	Cluster *kube.Cluster
	// Gate is the test's side of the tool gate.pass.
	Gate gate.Gate
	// Data is the folder of `cofferdam cluster`, which signs tokens of callers.
	Data string

	bin    string // our programs
	folder string // its overlay
	// changed says that a file of the overlay is not what it was.
	changed bool
	close   []func() error
}

var shared struct {
	sync.Mutex
	tried bool
	*Installation
}

// Main runs the tests of a package, or what they had this program started as, removes
// what they shared, and gives the exit code. The cluster ends afterwards, and the
// installation with it.
func Main(m *testing.M) int {
	if len(os.Args) == 2 && os.Args[1] == impostor.Argument {
		if err := impostor.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	code := m.Run()
	if shared.Installation != nil {
		if err := shared.shut(); err != nil {
			fmt.Fprintln(os.Stderr, "the shared installation:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared gives the installation of this package's tests, which the first one that asks
// brings up. One that did not get ready fails them all.
func Shared(t testing.TB, cfg Config) *Installation {
	t.Helper()
	c := kube.Connect(t)
	shared.Lock()
	defer shared.Unlock()
	if !shared.tried {
		shared.tried = true
		i := &Installation{Cluster: c}
		defer func() {
			if shared.Installation == nil { // it ended this test
				_ = i.shut()
			}
		}()
		i.install(t, cfg)
		shared.Installation = i
	}
	if shared.Installation == nil {
		t.Fatal("the installation did not get ready: see the first test")
	}
	shared.explain(t)
	return shared.Installation
}

func (i *Installation) shut() error {
	var errs []error
	for _, shut := range slices.Backward(i.close) {
		errs = append(errs, shut())
	}
	i.close = nil
	return errors.Join(errs...)
}

// install brings everything up and waits until it is ready, as docs/kubernetes.md says.
func (i *Installation) install(t testing.TB, cfg Config) {
	t.Helper()
	var err error
	if i.bin, err = filepath.Abs("../../bin"); err != nil {
		t.Fatal(err)
	}
	if i.folder = os.Getenv("COFFERDAM_INSTALLATION"); i.folder != "" {
		err = os.MkdirAll(i.folder, 0o700)
	} else if i.folder, err = os.MkdirTemp("", "cofferdam-installation-"); err == nil { //nolint:usetesting // it outlives this test
		i.close = append(i.close, func() error { return os.RemoveAll(i.folder) })
	}
	if err != nil {
		t.Fatal(err)
	}
	i.Data = filepath.Join(i.folder, "data")
	i.openGate(t)
	i.configure(t, cfg)
	for _, namespace := range []string{System, Development} {
		i.apply(t, fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace))
	}
	i.apply(t, i.Program(t, nil, "cofferdam", "cluster", "--data", i.Data, "--print", "secrets"))
	i.applyOverlay(t)
	i.Ready(t, Development, "openfga")
	settings := i.Program(t, nil, "cofferdam", "cluster", "--data", i.Data, "--print", "settings",
		"--openfga-url", "http://"+i.Address(t, Development, "openfga")+":8080",
		"--agents", filepath.Join(i.folder, "agents.json"), "--catalogue", filepath.Join(i.folder, "catalogue.json"))
	i.write(t, "ids.env", settings)
	if i.changed {
		i.applyOverlay(t)
		// They gave up while there was no store to ask.
		i.Kubectl(t, nil, "-n", System, "rollout", "restart", "deployment/controlplane", "deployment/toolbroker")
	}
	for _, name := range []string{"controlplane", "resolver"} {
		i.Ready(t, System, name)
	}
	for _, name := range []string{"capability", "statefacade", "filebroker", "modelproxy", "toolbroker"} {
		i.Serves(t, name)
	}
}

func (i *Installation) applyOverlay(t testing.TB) {
	t.Helper()
	i.apply(t, i.Kubectl(t, nil, "kustomize", i.folder))
}

func (i *Installation) apply(t testing.TB, manifests []byte) {
	t.Helper()
	i.Kubectl(t, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

// Ready waits until a deployment is rolled out.
func (i *Installation) Ready(t testing.TB, namespace, deployment string) {
	t.Helper()
	i.Kubectl(t, nil, "-n", namespace, "rollout", "status", "deployment/"+deployment, "--timeout="+kube.Patience.String())
}

// Serves waits until a broker is rolled out and its Service leads there. For a while after the first the node still sends
// connections to the pod of before, which refuses them: a run that begins then begins without tools, or without a model.
func (i *Installation) Serves(t testing.TB, broker string) {
	t.Helper()
	i.Ready(t, System, broker)
	var service *corev1.Service
	kube.Eventually(t, "the end of earlier pods of "+broker, func(ctx context.Context) (err error) {
		pods, err := i.Cluster.Client.CoreV1().Pods(System).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + broker})
		if err != nil {
			return err
		}
		if n := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }); n >= 0 {
			return fmt.Errorf("%s is there", pods.Items[n].Name)
		}
		service, err = i.Cluster.Client.CoreV1().Services(System).Get(ctx, broker, metav1.GetOptions{})
		return err
	})
	// The node's own connections go the way of its pods', and no policy holds them.
	i.Cluster.Node(t, "timeout", fmt.Sprint(kube.Patience.Seconds()), "bash", "-c",
		`until timeout 1 bash -c ': </dev/tcp/$0/8443' "$0" 2>/dev/null; do sleep 0.1; done`, service.Spec.ClusterIP)
}

// Service waits for a pod of a deployment that is ready, and gives it.
func (i *Installation) Service(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	kube.Eventually(t, "a pod of "+name, func(ctx context.Context) error {
		pods, err := i.Cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
		if err != nil {
			return err
		}
		for n := range pods.Items {
			p := &pods.Items[n]
			for _, condition := range p.Status.Conditions {
				if p.DeletionTimestamp == nil && condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					found = p
					return nil
				}
			}
		}
		return fmt.Errorf("none of %d is ready", len(pods.Items))
	})
	return found
}

// Address is that of a pod of a deployment which is ready.
func (i *Installation) Address(t testing.TB, namespace, name string) string {
	t.Helper()
	return i.Service(t, namespace, name).Status.PodIP
}

// Kill ends the process of a service with SIGKILL, and waits until its container was started again and is ready.
func (i *Installation) Kill(t testing.TB, name string) {
	t.Helper()
	pod := i.Service(t, System, name)
	before := Process(t, pod, name)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	Until(t, "another process of "+name, func() (bool, error) {
		now, err := process(pod, name)
		return err == nil && !before.Alive() && now.PID != before.PID, err
	})
	i.listens(t, name)
}

// listens waits until a service answers that was started again: that its pod is ready may be known no more, or not yet.
func (i *Installation) listens(t testing.TB, name string) {
	t.Helper()
	Until(t, name+" answers", func() (bool, error) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", i.Address(t, System, name)+":8080")
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
}

// Restart deletes the pods of a service, and waits for the next ones.
func (i *Installation) Restart(t testing.TB, name string) {
	t.Helper()
	before := i.Service(t, System, name).UID
	i.Kubectl(t, nil, "-n", System, "delete", "pod", "-l", "app.kubernetes.io/name="+name)
	Until(t, "another pod of "+name, func() (bool, error) { return i.Service(t, System, name).UID != before, nil })
	i.Ready(t, System, name)
}

// Pool sets how many sandboxes of the overlay's pool are kept ready, and waits until they are. The pool is what it was after the
// test.
func (i *Installation) Pool(t testing.TB, size int64) {
	t.Helper()
	was := i.pool(t, "spec", "replicas")
	i.Shrink(t, size)
	if was != size {
		t.Cleanup(func() { i.Shrink(t, was) })
	}
	Until(t, "a pool that is full", func() (bool, error) { return i.pool(t, "status", "readyReplicas") >= size, nil })
}

// Shrink is Pool without either: nothing is waited for, and nothing is undone.
func (i *Installation) Shrink(t testing.TB, size int64) {
	t.Helper()
	_, err := i.pools().Patch(context.WithoutCancel(t.Context()), poolName, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

const poolName = "native"

func (i *Installation) pools() dynamic.ResourceInterface {
	return i.Cluster.Dynamic.Resource(kube.WarmPools).Namespace(Sandboxes)
}

// pool is a number of the pool.
func (i *Installation) pool(t testing.TB, path ...string) int64 {
	t.Helper()
	pool, err := i.pools().Get(t.Context(), poolName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := unstructured.NestedInt64(pool.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Program runs one of ours and gives its stdout.
func (i *Installation) Program(t testing.TB, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	return output(t, stdin, filepath.Join(i.bin, name), args...)
}

// Kubectl runs kubectl as the cluster's administrator and gives its stdout.
func (i *Installation) Kubectl(t testing.TB, stdin []byte, args ...string) []byte {
	t.Helper()
	return output(t, stdin, os.Getenv("KUBECTL"), args...)
}

func output(t testing.TB, stdin []byte, path string, args ...string) []byte {
	t.Helper()
	// Not the test's context: cleanups use it too.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(path), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.Bytes()
}
