//go:build cluster

// Package cluster tests Cofferdam on a real Kubernetes: `make test-cluster` starts
// it and runs these inside its network.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cofferdam.dev/tests/cluster/internal/kube"
)

// TestNothingLeaves shows that there is no way out of the cluster's network: what a
// test sees refused is not refused because the machine has no internet.
func TestNothingLeaves(t *testing.T) {
	kube.Connect(t)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name != "lo" && link.Name != "node" {
			t.Errorf("link %s", link.Name)
		}
	}
	_, err = (&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", "192.0.2.1:443")
	if !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("dialled the world: %v", err)
	}
}

const hardenedPool = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: tests}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{from: [{ipBlock: {cidr: HOST/32}}], ports: [{port: 8080}]}]
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: probe}
spec:
  networkPolicyManagement: Unmanaged
  podTemplate:
    metadata: {labels: {app: probe}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 1
      restartPolicy: Never
      RUNTIME
      securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: probe
        image: IMAGE
        imagePullPolicy: IfNotPresent
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: probes}
spec: {replicas: 2, sandboxTemplateRef: {name: probe}}
`

const claim = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata: {name: NAME}
spec: {warmPoolRef: {name: probes}}
`

// pool makes a namespace of restricted Pod Security with a warm pool of probes.
func pool(t *testing.T, c *kube.Cluster) (namespace string, image kube.Image) {
	t.Helper()
	image = c.Image(t, "cofferdam-probe")
	namespace = c.Namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	runtime := "# the node's own runtime"
	if class := kube.RuntimeClass(); class != "" {
		runtime = "runtimeClassName: " + class
	}
	c.MustApply(t, namespace, strings.NewReplacer("IMAGE", image.Reference, "HOST", kube.Host, "RUNTIME", runtime).Replace(hardenedPool))
	return namespace, image
}

// claimed waits until a claim is Ready and returns the name of its pod.
func claimed(t *testing.T, c *kube.Cluster, namespace, name string) string {
	t.Helper()
	var sandbox string
	kube.Eventually(t, "claim "+name, func(ctx context.Context) error {
		object, err := c.Dynamic.Resource(kube.Claims).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status, reason := kube.Condition(object, "Ready"); status != "True" {
			return fmt.Errorf("ready is %q, reason %q", status, reason)
		}
		sandbox, _, err = unstructured.NestedString(object.Object, "status", "sandbox", "name")
		return err
	})
	return sandbox
}

// TestClaimOfAPinnedImage is the cluster from end to end: an image of ours, pinned by
// its digest, in a hardened pod from a warm pool, whose network is closed.
func TestClaimOfAPinnedImage(t *testing.T) {
	c := kube.Connect(t)
	namespace, image := pool(t, c)
	c.MustApply(t, namespace, strings.ReplaceAll(claim, "NAME", "one"))
	pod := c.PodReady(t, namespace, claimed(t, c, namespace, "one"))
	if got := pod.Status.ContainerStatuses[0].ImageID; !strings.HasSuffix(got, image.Digest) {
		t.Errorf("the pod runs %s, want %s", got, image.Digest)
	}

	var self map[string]string
	if err := kube.Probe(t.Context(), t, pod.Status.PodIP, "/self", nil, &self); err != nil {
		t.Fatal(err)
	}
	machine, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Uid": "65532", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "Seccomp": "2", "NoNewPrivs": "1",
		"kernel":  string(machine),
		"write /": "open /written: read-only file system",
		"account": "stat /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory",
	}
	if kube.RuntimeClass() == "gvisor" {
		// A kernel of its own, which the filter of the pod's seccomp profile stands around and not in, and which looks at the
		// owner of a folder before it looks at its mount.
		want["Seccomp"], want["write /"] = "0", "open /written: permission denied"
		if self["kernel"] == "" || self["kernel"] == want["kernel"] {
			t.Errorf("the pod is on the kernel %q, the machine on %s", self["kernel"], machine)
		}
		delete(want, "kernel")
	}
	for key, want := range want {
		if self[key] != want {
			t.Errorf("%s is %q, want %q", key, self[key], want)
		}
	}

	// A listener that stands for the internet: closed to the pod, open once a policy says so.
	world, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", kube.Host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer world.Close() //nolint:errcheck // a listener of the test
	targets := []string{world.Addr().String(), kube.Host + ":6443"}
	for _, target := range targets {
		if err := kube.Dial(t.Context(), t, pod.Status.PodIP, "tcp", target); !errors.Is(err, kube.ErrProbe) {
			t.Errorf("%s answered a pod whose network is closed: %v", target, err)
		}
	}
	c.MustApply(t, namespace, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: open}
spec: {podSelector: {}, policyTypes: [Egress], egress: [{}]}
`)
	for _, target := range targets {
		kube.Eventually(t, target+" with an open policy", func(ctx context.Context) error { return kube.Dial(ctx, t, pod.Status.PodIP, "tcp", target) })
	}

	if err := c.Dynamic.Resource(kube.Claims).Namespace(namespace).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.Eventually(t, "the end of the pod", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// TestControllerDown shows that the harness stops a part for real: no claim is
// answered without the controller, and it is once the controller is back.
func TestControllerDown(t *testing.T) {
	c := kube.Connect(t)
	namespace, _ := pool(t, c)
	c.MustApply(t, namespace, strings.ReplaceAll(claim, "NAME", "before"))
	claimed(t, c, namespace, "before")
	c.Stop(t, "sandbox-controller")
	c.MustApply(t, namespace, strings.ReplaceAll(claim, "NAME", "during"))
	// The control loops of the API server go on: a namespace is served while the
	// claim is not.
	c.Namespace(t, nil)
	object, err := c.Dynamic.Resource(kube.Claims).Namespace(namespace).Get(t.Context(), "during", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status, reason := kube.Condition(object, "Ready"); status != "" {
		t.Errorf("ready is %q, reason %q, with no controller", status, reason)
	}
	c.Start(t, "sandbox-controller")
	claimed(t, c, namespace, "during")
}
