package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/sandbox/sandboxtest"
)

// The tests here run on a real cluster with the real controller: kubeconfigEnv names
// its administrator's file, and imageEnv an image in it, name@sha256:…, that answers
// /healthz at port 8080. Without them only the fakes are tried.
const (
	kubeconfigEnv = "COFFERDAM_TEST_KUBECONFIG"
	imageEnv      = "COFFERDAM_TEST_SANDBOX_IMAGE"
	warmSize      = 3
)

// realCluster is a namespace with a template and a pool.
type realCluster struct {
	API
	namespace, image string
}

func openCluster(t *testing.T) *realCluster {
	t.Helper()
	path, image := os.Getenv(kubeconfigEnv), os.Getenv(imageEnv)
	if path == "" || image == "" {
		t.Skipf("NOT TESTED: %s and %s name no cluster; only the fakes are tried", kubeconfigEnv, imageEnv)
	}
	api, err := Dial(path)
	must(t, err)
	c := &realCluster{api, fmt.Sprintf("k-%d", time.Now().UnixNano()), image}
	ctx := t.Context()
	_, err = c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, c.Core.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), c.namespace, metav1.DeleteOptions{}))
	})
	_, err = c.Core.CoreV1().ServiceAccounts(c.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, metav1.CreateOptions{})
	must(t, err)
	blueprint := agents.SandboxBlueprint{PodTemplate: agents.PodTemplate{Spec: realSpec(image)}}
	c.make(t, "sandboxtemplates", &extensions.SandboxTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: extensions.GroupVersion.String(), Kind: extensions.SandboxTemplateKind},
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec:       extensions.SandboxTemplateSpec{SandboxBlueprint: blueprint, NetworkPolicyManagement: extensions.NetworkPolicyManagementUnmanaged},
	})
	replicas := int32(warmSize)
	c.make(t, "sandboxwarmpools", &extensions.SandboxWarmPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: extensions.GroupVersion.String(), Kind: extensions.SandboxWarmPoolKind},
		ObjectMeta: metav1.ObjectMeta{Name: "workers"},
		Spec:       extensions.SandboxWarmPoolSpec{Replicas: &replicas, TemplateRef: extensions.SandboxTemplateRef{Name: "worker"}},
	})
	return c
}

func (c *realCluster) make(t *testing.T, resource string, o any) {
	t.Helper()
	_, err := c.Custom.Resource(extensions.GroupVersion.WithResource(resource)).Namespace(c.namespace).Create(t.Context(), object(t, o), metav1.CreateOptions{})
	must(t, err)
}

func realSpec(image string) corev1.PodSpec {
	spec := *rightPod("", "", "", "").Spec.DeepCopy()
	spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	grace := int64(1)
	spec.TerminationGracePeriodSeconds = &grace
	c := &spec.Containers[0]
	c.Image, c.VolumeMounts, c.ImagePullPolicy = image, []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}, corev1.PullNever
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1}
	c.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
	}
	return spec
}

func (c *realCluster) provider(t *testing.T, change ...func(*Profile)) *Provider {
	t.Helper()
	profile := rightProfile()
	profile.Image = c.image
	for _, f := range change {
		f(&profile)
	}
	p, err := New(t.Context(), Config{
		API: c.API, Namespace: c.namespace, Environment: t.Name(), TrustDomain: td, Profiles: []Profile{profile},
		Meter: noop.NewMeterProvider().Meter(""), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

// full waits until the pool is.
func (c *realCluster) full(t *testing.T, p *Provider) {
	t.Helper()
	waittest.Until(t, "a full pool", func() bool { return p.caches.warm("workers") >= warmSize })
}

func (c *realCluster) deletePod(t *testing.T, in sandbox.Instance) {
	t.Helper()
	pods, err := c.Core.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: byClaim(types.UID(in.ClaimUID))})
	must(t, err)
	for i := range pods.Items {
		must(t, c.Core.CoreV1().Pods(c.namespace).Delete(t.Context(), pods.Items[i].Name, metav1.DeleteOptions{}))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The real controller passes the suite.
func TestProviderOnACluster(t *testing.T) {
	c := openCluster(t)
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.World {
		p := c.provider(t)
		c.full(t, p)
		t.Cleanup(func() { c.empty(t, p) })
		return sandboxtest.World{Provider: p, Claim: claimOf(""), Kill: c.deletePod}
	})
}

// empty releases what a test has left.
func (c *realCluster) empty(t *testing.T, p *Provider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	list, err := p.List(ctx)
	must(t, err)
	for _, in := range list {
		must(t, p.Release(ctx, in.ClaimName))
	}
}

// A sandbox that uses up its time ends of it.
func TestTheLifetimeOnACluster(t *testing.T) {
	c := openCluster(t)
	p := c.provider(t, func(p *Profile) { p.LifetimeSeconds = 5 })
	c.full(t, p)
	in, err := p.Claim(t.Context(), claimOf("hc-1"))
	must(t, err)
	select {
	case exit := <-p.Exits():
		if exit != (sandbox.Exit{ClaimName: "hc-1", UID: in.UID, Limit: sandbox.LimitLifetime}) {
			t.Errorf("%+v", exit)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
	}
	if err := p.Release(t.Context(), "hc-1"); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
