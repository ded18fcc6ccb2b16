package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(kubeconfigEnv) != "" {
		os.Exit(m.Run()) // client-go watches the file of an administrator's certificate until the process ends
	}
	goleak.VerifyTestMain(m)
}

const namespace = "sandboxes"

var (
	td         = spiffeid.RequireTrustDomainFromString("example.org")
	image      = "registry.example/worker@sha256:" + strings.Repeat("a1", 32)
	agentImage = "registry.example/agent@sha256:" + strings.Repeat("b2", 32)
)

// cluster is an API server's store with a controller that answers each claim at once.
type cluster struct {
	t      *testing.T
	custom *fake.FakeDynamicClient
	core   *corefake.Clientset

	mu   sync.Mutex
	made int
	// answer changes what the controller makes of a claim; nil is what it should be.
	answer func(w *made)
	// fail is what every request gets.
	fail error
	// keeps leaves what is deleted in the state of being deleted.
	keeps bool
}

// made is what answers to a claim.
type made struct {
	claim     *extensions.SandboxClaim
	sandboxes []*agents.Sandbox
	pods      []*corev1.Pod
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		t: t, core: corefake.NewClientset(),
		custom: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			claimResource: "SandboxClaimList", sandboxResource: "SandboxList",
		}),
	}
	c.custom.PrependReactor("create", "sandboxclaims", c.create)
	c.custom.PrependReactor("delete", "sandboxclaims", c.delete)
	c.custom.PrependReactor("*", "*", c.failing)
	c.core.PrependReactor("*", "*", c.failing)
	return c
}

func (c *cluster) failing(kubetesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fail != nil, nil, c.fail
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) create(a kubetesting.Action) (bool, runtime.Object, error) {
	action, ok := a.(kubetesting.CreateAction)
	if !ok {
		return false, nil, nil
	}
	u, ok := action.GetObject().(*unstructured.Unstructured)
	if !ok {
		return false, nil, nil
	}
	c.mu.Lock()
	c.made++
	n, change := c.made, c.answer
	c.mu.Unlock()
	claim, err := typed[extensions.SandboxClaim](u)
	if err != nil {
		return true, nil, err
	}
	claim.UID = types.UID(fmt.Sprintf("claim-%d", n))
	w := c.rightAnswer(claim, n)
	if change != nil {
		change(w)
	}
	if err := c.custom.Tracker().Create(claimResource, object(c.t, w.claim), namespace); err != nil {
		return true, nil, err
	}
	for _, s := range w.sandboxes {
		c.must(c.custom.Tracker().Create(sandboxResource, object(c.t, s), namespace))
	}
	for _, p := range w.pods {
		c.must(c.core.Tracker().Create(corev1.SchemeGroupVersion.WithResource("pods"), p, namespace))
	}
	return true, object(c.t, w.claim), nil
}

// rightAnswer is what a warm pool gives.
func (c *cluster) rightAnswer(claim *extensions.SandboxClaim, n int) *made {
	name := fmt.Sprintf("pool-%d", n)
	claim.Status = extensions.SandboxClaimStatus{
		Conditions:    []metav1.Condition{{Type: ready, Status: metav1.ConditionTrue, Reason: agents.SandboxReasonDependenciesReady}},
		SandboxStatus: extensions.SandboxStatus{Name: name},
	}
	answers := map[string]string{claimUIDLabel: string(claim.UID), agents.SandboxLaunchTypeLabel: agents.SandboxLaunchTypeWarm}
	s := &agents.Sandbox{
		TypeMeta: metav1.TypeMeta{APIVersion: agents.GroupVersion.String(), Kind: agents.SandboxKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID(fmt.Sprintf("sandbox-%d", n)), Labels: answers, ResourceVersion: fmt.Sprint(n),
			Annotations:     map[string]string{agents.SandboxTemplateRefAnnotation: "worker"},
			OwnerReferences: owner(extensions.SandboxClaimKind, claim.Name, claim.UID),
		},
	}
	return &made{claim, []*agents.Sandbox{s}, []*corev1.Pod{rightPod(name, s.UID, types.UID(fmt.Sprintf("pod-%d", n)), claim.UID)}}
}

func rightPod(name string, sandboxUID, uid, claimUID types.UID) *corev1.Pod {
	yes, no := true, false
	user := int64(65532)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: uid, ResourceVersion: "1", Labels: map[string]string{claimUIDLabel: string(claimUID)},
			OwnerReferences: owner(agents.SandboxKind, name, sandboxUID),
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "worker", AutomountServiceAccountToken: &no, RestartPolicy: corev1.RestartPolicyNever,
			DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.53"}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "worker", Image: image,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("64Mi"),
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "spiffe", MountPath: "/spiffe-workload-api"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "workspace", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "spiffe", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: workloadAPIDriver, ReadOnly: &yes}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "worker", ImageID: image, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}
}

func owner(kind, name string, uid types.UID) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: &yes}}
}

// delete is in the foreground: sandbox and pod first.
func (c *cluster) delete(a kubetesting.Action) (bool, runtime.Object, error) {
	action, ok := a.(kubetesting.DeleteActionImpl)
	if !ok {
		return false, nil, nil
	}
	raw, err := c.custom.Tracker().Get(claimResource, namespace, action.Name)
	if err != nil {
		return true, nil, err
	}
	claim := c.claim(raw)
	if want := action.DeleteOptions.Preconditions; want == nil || want.UID == nil || *want.UID != claim.UID {
		return true, nil, apierrors.NewConflict(claimResource.GroupResource(), action.Name, errors.New("another UID"))
	}
	if policy := action.DeleteOptions.PropagationPolicy; policy == nil || *policy != metav1.DeletePropagationForeground {
		return true, nil, errors.New("not in the foreground")
	}
	c.mu.Lock()
	keeps := c.keeps
	c.mu.Unlock()
	if keeps {
		now := metav1.Now()
		claim.DeletionTimestamp = &now
		return true, nil, c.custom.Tracker().Update(claimResource, object(c.t, claim), namespace)
	}
	c.sweep(claim.UID)
	return true, nil, c.custom.Tracker().Delete(claimResource, namespace, action.Name)
}

// deleteByHand removes a claim as a deletion in the background does: nothing of it is left
// but its pod, which has a while to end, and for a moment its sandbox.
func (c *cluster) deleteByHand(name string, sandboxToo bool) {
	c.t.Helper()
	raw, err := c.custom.Tracker().Get(claimResource, namespace, name)
	c.must(err)
	box := c.claim(raw).Status.SandboxStatus.Name
	c.must(c.custom.Tracker().Delete(claimResource, namespace, name))
	if sandboxToo {
		c.collect(box)
	}
}

// collect is what becomes of the sandbox of such a claim.
func (c *cluster) collect(box string) {
	c.t.Helper()
	c.must(c.custom.Tracker().Delete(sandboxResource, namespace, box))
	c.pod(box, func(pod *corev1.Pod) bool { now := metav1.Now(); pod.DeletionTimestamp = &now; return true })
}

func (c *cluster) claim(o runtime.Object) *extensions.SandboxClaim {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		c.t.Fatalf("a claim is %T", o)
	}
	claim, err := typed[extensions.SandboxClaim](u)
	c.must(err)
	return claim
}

// sweep removes what answers to a claim. It asks the trackers: a reactor that asks the
// client waits for itself.
func (c *cluster) sweep(uid types.UID) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := c.core.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
	c.must(err)
	if list, ok := o.(*corev1.PodList); ok {
		for i := range list.Items {
			if list.Items[i].Labels[claimUIDLabel] == string(uid) {
				c.must(c.core.Tracker().Delete(pods, namespace, list.Items[i].Name))
			}
		}
	}
	for _, s := range c.stored(sandboxResource, agents.GroupVersion.WithKind(agents.SandboxKind)) {
		if s.GetLabels()[claimUIDLabel] == string(uid) {
			c.must(c.custom.Tracker().Delete(sandboxResource, namespace, s.GetName()))
		}
	}
}

func (c *cluster) stored(gvr schema.GroupVersionResource, gvk schema.GroupVersionKind) []unstructured.Unstructured {
	o, err := c.custom.Tracker().List(gvr, gvk, namespace)
	c.must(err)
	list, ok := o.(*unstructured.UnstructuredList)
	if !ok {
		c.t.Errorf("a list is %T", o)
		return nil
	}
	return list.Items
}

func (c *cluster) must(err error) {
	if err != nil {
		c.t.Error(err)
	}
}

// claims are the names of those that there are.
func (c *cluster) claims() []string {
	var out []string
	for _, o := range c.stored(claimResource, extensions.GroupVersion.WithKind(extensions.SandboxClaimKind)) {
		out = append(out, o.GetName())
	}
	return out
}

// pod changes a pod, or removes it where change says so.
func (c *cluster) pod(name string, change func(*corev1.Pod) (keep bool)) {
	c.t.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := c.core.Tracker().Get(gvr, namespace, name)
	c.must(err)
	pod, ok := o.DeepCopyObject().(*corev1.Pod)
	if !ok {
		c.t.Fatalf("a pod is %T", o)
	}
	if change(pod) {
		c.must(c.core.Tracker().Update(gvr, pod, namespace))
		return
	}
	c.must(c.core.Tracker().Delete(gvr, namespace, name))
}

func object(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}

func rightProfile() Profile {
	p := Profile{Name: "default", Harness: "native", WarmPool: "workers", Template: "worker", Image: image, Unsigned: true, ColdStart: true, DescriptionFile: "x"}
	p.setDefaults()
	p.entry = harnesses.Entry{Profile: "default"}
	return p
}

// provider is one replica's.
func (c *cluster) provider(profiles ...Profile) *Provider {
	c.t.Helper()
	if profiles == nil {
		profiles = []Profile{rightProfile()}
	}
	p, err := New(c.t.Context(), Config{
		API: API{c.custom, c.core}, Namespace: namespace, Environment: "test", TrustDomain: td, Profiles: profiles,
		Addresses: map[string]string{"toolbroker": "https://toolbroker:8443"},
		Meter:     noop.NewMeterProvider().Meter(""), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { c.must(p.Close()) })
	return p
}

func claimOf(name string) sandbox.Claim {
	return sandbox.Claim{Name: name, Profile: "default", Harness: "native"}
}

// wantCode sees that an error has a code, and says when to come again where it must.
func wantCode(t *testing.T, what string, err error, want fault.Code) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	switch {
	case !ok || f.Code() != want:
		t.Errorf("%s: %v, want %s", what, err, want)
	case want == fault.SandboxCapacity && f.RetryAfter() <= 0:
		t.Errorf("%s: no Retry-After", what)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
