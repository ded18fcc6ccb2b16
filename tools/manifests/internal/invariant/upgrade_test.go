package invariant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// upgrade is an installation in which the worker before is still in use.
const upgrade = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [BASE/overlays/production, native-2.yaml]
components: [BASE/components/runtime-gvisor, BASE/components/values]
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
- {name: cofferdam-settings, namespace: cofferdam-system, behavior: merge, literals: ["IMAGE_WORKER=NEW"]}
patches:
- target: {kind: SandboxTemplate, name: native}
  patch: |
    - {op: replace, path: /spec/podTemplate/spec/containers/0/image, value: "OLD"}
    - {op: replace, path: /spec/podTemplate/spec/containers/0/env/0/value, value: "DIGEST"}
- target: {kind: ConfigMap, name: sandbox-admission}
  patch: |
    - {op: add, path: /data/image-worker-before, value: "OLD"}
`

// The next worker's template and pool stand beside those of the one before, as docs/kubernetes.md has it.
func TestTwoWorkersAtOnce(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("1", 64)
	before, next := "registry.example/worker@"+digest, "registry.example/worker@sha256:"+strings.Repeat("2", 64)
	text, err := os.ReadFile(filepath.Join(kubernetes, "base/worker-native.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sandbox, _, _ := strings.Cut(string(text), "\n---\n# What a worker is told")
	in := decoded(t, rendered(t, map[string]string{
		"kustomization.yaml": strings.NewReplacer("OLD", before, "NEW", next, "DIGEST", digest).Replace(upgrade),
		"native-2.yaml":      strings.ReplaceAll(sandbox, "name: native", "name: native-2"),
	}))
	if wrong := Check(in); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
	for template, image := range map[string]string{"native": before, "native-2": next} {
		if s := worker(in, template); s.Containers[0].Image != image || s.RuntimeClassName == nil || *s.RuntimeClassName != "gvisor" {
			t.Errorf("%s runs %s as %v: want %s as gvisor", template, s.Containers[0].Image, s.RuntimeClassName, image)
		}
	}
	if pool := get(in.Pools, sandboxes+"/native-2"); pool.Spec.TemplateRef.Name != "native-2" {
		t.Errorf("the pool native-2 is of the template %s", pool.Spec.TemplateRef.Name)
	}
}
