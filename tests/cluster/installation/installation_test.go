//go:build cluster

package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/cluster/internal/kube"
)

const (
	system      = "cofferdam-system"
	sandboxes   = "cofferdam-sandboxes"
	development = "cofferdam-dev"

	overlays = "../../deploy/kubernetes/overlays/development"
)

// images of a whole installation, by the setting that names each.
func imageSettings() map[string]string {
	return map[string]string{
		"IMAGE_CAPABILITY": "capability", "IMAGE_CONTROLPLANE": "controlplane", "IMAGE_FILEBROKER": "filebroker",
		"IMAGE_MODELPROXY": "modelproxy", "IMAGE_STATEFACADE": "statefacade", "IMAGE_TOOLBROKER": "toolbroker",
		"IMAGE_WORKER": "worker", "IMAGE_RESOLVER": "cofferdam-dns", "IMAGE_OPENFGA": "cofferdam-openfga",
		"IMAGE_FERRETDB": "cofferdam-ferretdb", "IMAGE_MCP_FILES": "cofferdam-mcp-files", "IMAGE_NODEIDENTITY": "cofferdam-nodeidentity",
	}
}

// installation is overlays/development on the cluster, as docs/kubernetes.md says that it is made.
type installation struct {
	cluster *kube.Cluster
	bin     string // our programs
	folder  string // the overlay of this installation
	data    string // of `cofferdam cluster`
}

// install brings up everything and waits until it is ready. It ends with the cluster.
func install(t *testing.T, c *kube.Cluster) *installation {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{cluster: c, bin: bin, folder: t.TempDir(), data: filepath.Join(t.TempDir(), "data")}
	i.overlay(t)
	for _, namespace := range []string{system, development} {
		i.apply(t, fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace))
	}
	i.apply(t, i.program(t, nil, "cofferdam", "cluster", "--data", i.data, "--print", "secrets"))
	i.applyOverlay(t)
	i.ready(t, development, "openfga")
	settings := i.program(t, nil, "cofferdam", "cluster", "--data", i.data, "--print", "settings",
		"--openfga-url", "http://"+i.address(t, development, "openfga")+":8080",
		"--agents", overlays+"/config/agents.json", "--catalogue", overlays+"/config/catalogue.json")
	i.write(t, "ids.env", settings)
	i.applyOverlay(t)
	// They gave up while there was no store to ask.
	i.kubectl(t, nil, "-n", system, "rollout", "restart", "deployment/controlplane", "deployment/toolbroker")
	for _, name := range []string{"capability", "statefacade", "filebroker", "modelproxy", "toolbroker", "controlplane", "resolver"} {
		i.ready(t, system, name)
	}
	return i
}

// overlay writes what this cluster decides: images, their profile, and nothing else.
func (i *installation) overlay(t *testing.T) {
	t.Helper()
	var settings strings.Builder
	for setting, name := range imageSettings() {
		fmt.Fprintf(&settings, "%s=%s\n", setting, i.cluster.Image(t, name).Reference)
	}
	i.write(t, "images.env", []byte(settings.String()))
	i.write(t, "ids.env", []byte("OPENFGA_STORE_ID=unset\n"))
	worker := i.cluster.Image(t, "worker")
	const mounted = "/etc/cofferdam/sandbox-profiles/"
	profiles, err := json.Marshal(map[string]any{"profiles": []any{map[string]any{
		"name": "native", "harness": "native", "warm_pool": "native", "template": "native", "image": worker.Reference, "runtime_class": "",
		"description_file": mounted + "native.json", "cold_start": true, "max": 20, "lifetime_seconds": 3600,
		"signature": map[string]any{"bundle_file": mounted + "worker.sigstore.json", "public_key_file": mounted + "development.pub"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	i.write(t, "profiles.json", profiles)
	i.write(t, "native.json", i.program(t, nil, "worker", "describe", "--harness", "native"))
	for name, from := range map[string]string{"worker.sigstore.json": worker.Bundle, "development.pub": filepath.Join(i.bin, "oci/development.pub")} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		i.write(t, name, text)
	}
	base, err := filepath.Abs(overlays)
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.EvalSymlinks(i.folder)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, base)
	if err != nil {
		t.Fatal(err)
	}
	i.write(t, "kustomization.yaml", []byte(strings.ReplaceAll(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [OVERLAY]
components: [OVERLAY/nodeidentity, OVERLAY/../../components/values, OVERLAY/values]
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
- {name: cofferdam-settings, namespace: cofferdam-system, behavior: merge, envs: [images.env, ids.env]}
- {name: sandbox-profiles, namespace: cofferdam-system, behavior: replace, files: [profiles.json, native.json, worker.sigstore.json, development.pub]}
`, "OVERLAY", relative)))
}

func (i *installation) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(i.folder, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (i *installation) applyOverlay(t *testing.T) {
	t.Helper()
	i.apply(t, i.kubectl(t, nil, "kustomize", i.folder))
}

func (i *installation) apply(t *testing.T, manifests []byte) {
	t.Helper()
	i.kubectl(t, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (i *installation) ready(t *testing.T, namespace, deployment string) {
	t.Helper()
	i.kubectl(t, nil, "-n", namespace, "rollout", "status", "deployment/"+deployment, "--timeout="+kube.Patience.String())
}

// address is that of the one pod of a deployment.
func (i *installation) address(t *testing.T, namespace, name string) string {
	t.Helper()
	var address string
	kube.Eventually(t, "a pod of "+name, func(ctx context.Context) error {
		pods, err := i.cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
		if err != nil {
			return err
		}
		address = ""
		for _, p := range pods.Items {
			for _, condition := range p.Status.Conditions {
				if p.DeletionTimestamp == nil && condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					address = p.Status.PodIP
				}
			}
		}
		if address == "" {
			return fmt.Errorf("none of %d is ready", len(pods.Items))
		}
		return nil
	})
	return address
}

// program runs one of ours and gives its stdout.
func (i *installation) program(t *testing.T, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	return output(t, stdin, filepath.Join(i.bin, name), args...)
}

func (i *installation) kubectl(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	return output(t, stdin, os.Getenv("KUBECTL"), args...)
}

func output(t *testing.T, stdin []byte, path string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(path), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.Bytes()
}
