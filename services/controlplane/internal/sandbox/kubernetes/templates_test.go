package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// deployed is where the manifests are.
const deployed = "../../../../../deploy/kubernetes"

// What is verified and what is deployed go together: a pod of each template of ours is one
// that its profile takes.
func TestOurTemplates(t *testing.T) {
	for file, want := range map[string]string{
		"base/worker-native.yaml":         "native",
		"components/hosted/acp.yaml":      "acp",
		"components/hosted/stdio.yaml":    "stdio",
		"components/pvc/native-disk.yaml": "native-disk",
	} {
		template := readTemplate(t, filepath.Join(deployed, file))
		profile, a := podOf(template)
		if err := profile.verify(a); err != nil || template.Name != want {
			t.Errorf("%s of %s: %v", template.Name, file, err)
		}
		limits := a.pod.Spec.Containers[0].Resources.Limits
		delete(limits, corev1.ResourceMemory)
		if err := profile.verify(a); !errors.Is(err, errProfile) {
			t.Errorf("%s without its limit of memory: %v", template.Name, err)
		}
	}
}

func readTemplate(t *testing.T, path string) *extensions.SandboxTemplate {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), len(raw))
	for {
		template := &extensions.SandboxTemplate{}
		if err := documents.Decode(template); errors.Is(err, io.EOF) {
			t.Fatalf("%s has no SandboxTemplate", path)
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if template.Kind == extensions.SandboxTemplateKind {
			return template
		}
	}
}

// podOf makes what the controller makes of a template, and the profile that names it.
func podOf(template *extensions.SandboxTemplate) (Profile, answer) {
	s := &agents.Sandbox{Spec: agents.SandboxSpec{SandboxBlueprint: template.Spec.SandboxBlueprint}}
	s.Name, s.Annotations = "pool-1", map[string]string{agents.SandboxTemplateRefAnnotation: template.Name}
	pod := &corev1.Pod{Spec: *template.Spec.PodTemplate.Spec.DeepCopy()}
	for _, disk := range s.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: disk.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: disk.Name + "-" + s.Name},
		}})
	}
	p := Profile{Harness: template.Name, WarmPool: template.Name, Template: template.Name, Unsigned: true, PersistentVolumes: len(s.Spec.VolumeClaimTemplates) > 0}
	for _, c := range pod.Spec.Containers {
		if strings.Contains(c.Image, "/worker@") {
			p.Image = c.Image
		} else {
			p.AgentImage = c.Image
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, ImageID: c.Image})
	}
	for _, c := range pod.Spec.InitContainers {
		p.InitContainers = append(p.InitContainers, c.Name)
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, ImageID: c.Image})
	}
	p.setDefaults()
	claim := &extensions.SandboxClaim{Spec: extensions.SandboxClaimSpec{WarmPoolRef: extensions.SandboxWarmPoolRef{Name: p.WarmPool}}}
	return p, answer{claim: claim, sandbox: s, pod: pod}
}
