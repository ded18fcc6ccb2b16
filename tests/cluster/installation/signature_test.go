//go:build cluster

package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

// The profile, pool and template of this name run another image of the worker than the profile says.
const (
	swapped     = "swapped"
	profilesMap = "sandbox-profiles"
)

var (
	swappedProfile = map[string]any{"name": swapped, "harness": "native", "warm_pool": swapped, "template": swapped}
	swappedAgent   = map[string]any{
		"agent_id": swapped, "name": "Swapped", "organization": "default", "harness": "native", "adapter_version": "1.1.0",
		"model_alias": "demo", "profile": swapped, "tools": []string{}, "prompt": "You are never asked.",
	}
)

// A control plane does not start with a profile whose image its operator has not signed: with this key, for this digest. What is
// wrong stands in its log, and the one that runs goes on.
func TestProfilesThatAreNotSigned(t *testing.T) {
	i := installation.Shared(t, config)
	mounted, err := i.Cluster.Client.CoreV1().ConfigMaps(installation.System).Get(t.Context(), profilesMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	i.Program(t, nil, "images", "keygen", "--private", filepath.Join(folder, "other.key"), "--public", filepath.Join(folder, "other.pub"))
	otherKey, err := os.ReadFile(filepath.Join(folder, "other.pub"))
	if err != nil {
		t.Fatal(err)
	}
	otherImage, err := os.ReadFile(i.Cluster.Image(t, "modelproxy").Bundle)
	if err != nil {
		t.Fatal(err)
	}
	var unsigned map[string]json.RawMessage
	var envelope map[string]any
	if err := json.Unmarshal([]byte(mounted.Data["worker.sigstore.json"]), &unsigned); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(unsigned["dsseEnvelope"], &envelope); err != nil {
		t.Fatal(err)
	}
	envelope["signatures"] = []any{}
	if unsigned["dsseEnvelope"], err = json.Marshal(envelope); err != nil {
		t.Fatal(err)
	}
	bare, err := json.Marshal(unsigned)
	if err != nil {
		t.Fatal(err)
	}

	refused := map[string]struct {
		change func(map[string]string)
		says   string
	}{
		"none":      {func(d map[string]string) { d["profiles.json"] = without(t, d["profiles.json"], "signature") }, "signature: required"},
		"unsigned":  {func(d map[string]string) { d["worker.sigstore.json"] = string(bare) }, "the signature is no"},
		"key":       {func(d map[string]string) { d["development.pub"] = string(otherKey) }, "the signature is not one of this key for this image digest"},
		"digest":    {func(d map[string]string) { d["worker.sigstore.json"] = string(otherImage) }, "the signature is not one of this key for this image digest"},
		"as-it-was": {func(map[string]string) {}, ""},
	}
	for name, c := range refused {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tests-profiles-" + name, Namespace: installation.System}, Data: maps.Clone(mounted.Data)}
		c.change(config.Data)
		beside(t, i, config)
	}
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			pod := "tests-profiles-" + name
			if c.says == "" {
				i.Cluster.PodReady(t, installation.System, pod)
				return
			}
			kube.Eventually(t, "the end of the control plane", func(ctx context.Context) error {
				p, err := i.Cluster.Client.CoreV1().Pods(installation.System).Get(ctx, pod, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if p.Status.Phase != corev1.PodFailed {
					return fmt.Errorf("it is %s", p.Status.Phase)
				}
				return nil
			})
			log, err := i.Cluster.Client.CoreV1().Pods(installation.System).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
			if err != nil || !strings.Contains(string(log), c.says) {
				t.Errorf("it says %s, %v; want %q", log, err, c.says)
			}
		})
	}
}

// without takes a field out of the profile native.
func without(t *testing.T, profiles, field string) string {
	t.Helper()
	var doc map[string][]map[string]any
	if err := json.Unmarshal([]byte(profiles), &doc); err != nil {
		t.Fatal(err)
	}
	for _, p := range doc["profiles"] {
		if p["name"] == "native" {
			delete(p, field)
		}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// beside starts a control plane beside the one that runs, as that is, but for its profiles.
func beside(t *testing.T, i *installation.Installation, profiles *corev1.ConfigMap) {
	t.Helper()
	running, err := i.Cluster.Client.AppsV1().Deployments(installation.System).Get(t.Context(), "controlplane", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: profiles.Name, Namespace: installation.System, Labels: running.Spec.Template.Labels}, Spec: running.Spec.Template.Spec}
	pod.Spec.RestartPolicy, pod.Spec.TopologySpreadConstraints = corev1.RestartPolicyNever, nil
	for n := range pod.Spec.Volumes {
		if pod.Spec.Volumes[n].Name == profilesMap {
			pod.Spec.Volumes[n].ConfigMap.Name = profiles.Name
		}
	}
	maps, pods := i.Cluster.Client.CoreV1().ConfigMaps(installation.System), i.Cluster.Client.CoreV1().Pods(installation.System)
	if _, err := maps.Create(t.Context(), profiles, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := maps.Delete(context.WithoutCancel(t.Context()), profiles.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		kube.Eventually(t, "the end of "+pod.Name, func(ctx context.Context) error {
			_, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	})
}

// A warm pod runs a worker of another digest than the profile's, and says that it is the profile's. Admission was told to take it.
// It answers to the claim, and gets no turn: the run ends as it is documented, and the pod is destroyed.
func TestAWarmPodOfAnotherImage(t *testing.T) {
	i := installation.Shared(t, config)
	image := another(t, i)
	ctx := t.Context()

	admission := i.Cluster.Client.CoreV1().ConfigMaps(installation.System)
	allow := func(ctx context.Context, change string) {
		if _, err := admission.Patch(ctx, "sandbox-admission", types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	allow(ctx, fmt.Sprintf(`{"data":{"image-swapped":%q}}`, image))
	t.Cleanup(func() { allow(context.WithoutCancel(ctx), `{"data":{"image-swapped":null}}`) })

	templates := i.Cluster.Dynamic.Resource(kube.Templates).Namespace(installation.Sandboxes)
	native, err := templates.Get(ctx, "native", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := unstructured.NestedMap(native.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	containers, _, err := unstructured.NestedSlice(spec, "podTemplate", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container, _ := containers[0].(map[string]any)
	container["image"] = image // what it is told of its digest stays
	args, _ := container["args"].([]any)
	container["args"] = slices.DeleteFunc(args, func(a any) bool { return strings.HasPrefix(fmt.Sprint(a), "--termination-log=") }) // its witness is the runner
	if err := unstructured.SetNestedSlice(spec, containers, "podTemplate", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	for resource, object := range map[schema.GroupVersionResource]map[string]any{
		kube.Templates: {"kind": "SandboxTemplate", "spec": spec},
		kube.WarmPools: {"kind": "SandboxWarmPool", "spec": map[string]any{"replicas": int64(1), "sandboxTemplateRef": map[string]any{"name": swapped}}},
	} {
		object["apiVersion"], object["metadata"] = native.GetAPIVersion(), map[string]any{"name": swapped, "namespace": installation.Sandboxes}
		client := i.Cluster.Dynamic.Resource(resource).Namespace(installation.Sandboxes)
		if _, err := client.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Delete(context.WithoutCancel(ctx), swapped, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}

	var warm corev1.Pod
	kube.Eventually(t, "the warm pod", func(ctx context.Context) error {
		pods, err := i.Cluster.Client.CoreV1().Pods(installation.Sandboxes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
			if p.Spec.Containers[0].Image == image && ready {
				warm = p
				return nil
			}
		}
		return fmt.Errorf("none of %d is it", len(pods.Items))
	})
	r := i.Talk(t, swapped).Say(t, ">>say hello")
	if r.Ending() != "run.error worker_mismatch" {
		t.Errorf("the run ended as %s", r)
	}
	kube.Eventually(t, "the end of the warm pod", func(ctx context.Context) error {
		p, err := i.Cluster.Client.CoreV1().Pods(installation.Sandboxes).Get(ctx, warm.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && p.UID != warm.UID {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// another is an image of the worker with another digest, on the node: that program, and no runner.
func another(t *testing.T, i *installation.Installation) (reference string) {
	t.Helper()
	worker, err := filepath.Abs("../../bin/worker")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "swapped.tar")
	pack := func(reference string) string {
		return strings.TrimSpace(string(i.Program(t, nil, "images", "pack", "--program", worker, "--reference", reference, "--archive", archive)))
	}
	reference = "localhost/swapped@" + pack("localhost/swapped:any") // the name is no part of the image
	pack(reference)
	i.Cluster.Load(t, archive, reference)
	return reference
}
