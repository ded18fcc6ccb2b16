//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"cofferdam.dev/tests/cluster/internal/kube"
)

// addresses counts the resolvers that were installed. firstAddress is the last number of the first one's address, in
// the part of the range that is given out last.
var addresses atomic.Int32

const firstAddress = 70

// installation is the manifests of deploy/kubernetes, applied under names of its own: nothing else in the
// cluster is touched, and nothing of it runs.
type installation struct {
	*kube.Cluster
	prefix            string
	system, sandboxes string
}

const apart = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/overlays/%[2]s]
components: [%[3]s%[1]s/components/values]
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
- name: cofferdam-settings
  namespace: cofferdam-system
  behavior: merge
  literals: [RESOLVER_ADDRESS=%[4]s, STORAGE_CLASSES=%[5]s]
`

// install renders an overlay with more components, and applies it with strict field validation.
func install(t *testing.T, overlay, storageClasses string, components ...string) *installation {
	t.Helper()
	c := kube.Connect(t)
	in := &installation{Cluster: c, prefix: "apart-" + rand.String(5)}
	in.system, in.sandboxes = in.prefix+"-system", in.prefix+"-sandboxes"
	in.watchParameters(t)
	in.apply(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": map[string]any{"name": in.prefix + "-isolated"}, "handler": "runsc",
	}})
	for _, object := range in.render(t, overlay, storageClasses, components...) {
		// The cluster has no SPIRE; its resources are only rendered (docs/kubernetes.md).
		if object.GetKind() == "ClusterSPIFFEID" {
			continue
		}
		in.idle(object)
		in.apply(t, object)
	}
	return in
}

// anchor is a policy that judges nothing, and its binding. An API server whose last binding with a kind of parameters
// goes reads none of that kind any more, for as long as it runs (kubernetes 130887): every later policy would refuse all.
const anchor = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: tests-anchor}
spec:
  failurePolicy: Ignore
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [nothing.cofferdam.dev], apiVersions: [v1], operations: [CREATE], resources: [nothing]}]
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: tests-anchor}
spec:
  policyName: tests-anchor
  paramRef: {name: none, namespace: default, parameterNotFoundAction: Allow}
  validationActions: [Deny]
`

// watchParameters leaves the anchor in the cluster, beyond the end of the test.
func (in *installation) watchParameters(t *testing.T) {
	t.Helper()
	for _, object := range decode(t, anchor) {
		in.patch(t, object)
	}
}

// apply makes an object for as long as the test runs.
func (in *installation) apply(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	client := in.patch(t, object)
	if object.GetNamespace() != "" { // ends with its namespace
		return
	}
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	})
}

// patch makes an object as kubectl apply --server-side --validate=strict does.
func (in *installation) patch(t *testing.T, object *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	kind := object.GroupVersionKind()
	plural, _ := meta.UnsafeGuessKindToResource(kind) // right for each of ours, or nothing is found
	client := in.Dynamic.Resource(plural).Namespace(object.GetNamespace())
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.PatchOptions{FieldManager: "tests", FieldValidation: metav1.FieldValidationStrict}
	if _, err := client.Patch(t.Context(), object.GetName(), types.ApplyPatchType, text, options); err != nil {
		t.Fatalf("%s %s: %v", kind.Kind, object.GetName(), err)
	}
	return client
}

func (in *installation) render(t *testing.T, overlay, storageClasses string, components ...string) []*unstructured.Unstructured {
	t.Helper()
	kubernetes, err := filepath.Abs("../../deploy/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	// Beside the manifests: kustomize takes only relative folders.
	folder := t.TempDir()
	base, err := filepath.Rel(folder, kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, name := range components {
		fmt.Fprintf(&list, "%s/components/%s, ", base, name)
	}
	own, err := in.Client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// In the cluster's range, whichever it is. The address of the installation before is given back some time after it.
	resolver := regexp.MustCompile(`\d+$`).ReplaceAllString(own.Spec.ClusterIP, strconv.Itoa(firstAddress+int(addresses.Add(1))))
	text := fmt.Sprintf(apart, base, overlay, list.String(), resolver, storageClasses)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("COFFERDAM_BIN_DIR"), "manifests"), "kustomize", folder)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return decode(t, in.rename(string(out)))
}

// rename gives all that is named once in a cluster a name of this installation's.
func (in *installation) rename(text string) string {
	return strings.NewReplacer(
		"cofferdam-system", in.system, "cofferdam-sandboxes", in.sandboxes, "cofferdam-dev", in.prefix+"-dev",
		"cofferdam-sandbox-", in.prefix+"-", "cofferdam-resolver", in.prefix+"-resolver", "gvisor", in.prefix+"-isolated",
		"kata", in.prefix+"-isolated",
	).Replace(text)
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object unstructured.Unstructured
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &object)
	}
}

// idle has nothing run of what is applied, and lets through all that only our own rules refuse.
func (in *installation) idle(object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "Deployment", "SandboxWarmPool":
		_ = unstructured.SetNestedField(object.Object, int64(0), "spec", "replicas") // spec is an object
	case "Namespace":
		labels := object.GetLabels()
		for _, mode := range []string{"enforce", "audit", "warn"} {
			labels["pod-security.kubernetes.io/"+mode] = "privileged"
		}
		object.SetLabels(labels)
	}
}

// pod is a pod of a template, as the sandbox controller would make it.
func (in *installation) pod(t *testing.T, template string) *corev1.Pod {
	t.Helper()
	object, err := in.Dynamic.Resource(kube.Templates).Namespace(in.sandboxes).Get(t.Context(), template, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := unstructured.NestedMap(object.Object, "spec", "podTemplate", "spec")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: in.sandboxes}}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod.Spec); err != nil {
		t.Fatal(err)
	}
	return pod
}
