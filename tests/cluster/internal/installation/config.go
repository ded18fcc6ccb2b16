//go:build cluster

package installation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/gate"
)

// Namespaces of an installation.
const (
	System      = "cofferdam-system"
	Sandboxes   = "cofferdam-sandboxes"
	Development = "cofferdam-dev"
)

// Agents that every installation has.
const (
	// Agent is the overlay's, with the gate besides.
	Agent = "demo"
	// Careful asks a person before each call of a tool.
	Careful = "careful"
	// Warm is [Agent] in sandboxes of the pool alone: an empty one is sandbox_capacity.
	Warm = "warm"
)

// Config is what an installation has beside the overlay. It is the same for all tests of
// a package: the first one that asks decides.
type Config struct {
	// Agents, Servers and Profiles are further entries of agents.json, catalogue.json and
	// profiles.json. A profile without an image gets the worker's, its signature, and the
	// description of its harness.
	Agents, Servers, Profiles []map[string]any
	// Settings go into cofferdam-settings.
	Settings map[string]string
	// Components are folders below deploy/kubernetes, such as "components/pvc".
	Components []string
	// Patches are entries of the kustomization's list of the same name.
	Patches []map[string]any
	// Files are further files of the ConfigMap of the profiles, by name.
	Files map[string][]byte
}

// images of a whole installation, by the setting that names each.
func imageSettings() map[string]string {
	return map[string]string{
		"IMAGE_CAPABILITY": "capability", "IMAGE_CONTROLPLANE": "controlplane", "IMAGE_FILEBROKER": "filebroker",
		"IMAGE_MODELPROXY": "modelproxy", "IMAGE_STATEFACADE": "statefacade", "IMAGE_TOOLBROKER": "toolbroker",
		"IMAGE_WORKER": "worker", "IMAGE_RESOLVER": "cofferdam-dns", "IMAGE_OPENFGA": "cofferdam-openfga",
		"IMAGE_FERRETDB": "cofferdam-ferretdb", "IMAGE_MCP_FILES": "cofferdam-mcp-files", "IMAGE_NODEIDENTITY": "cofferdam-nodeidentity",
	}
}

// kubernetes is deploy/kubernetes, from tests/cluster, where all its tests run.
const kubernetes = "../../deploy/kubernetes"

// Overlay is the folder of the overlay that is installed.
const Overlay = kubernetes + "/overlays/development"

// mounted is where the control plane has the files of the ConfigMap sandbox-profiles.
const mounted = "/etc/cofferdam/sandbox-profiles/"

// MaxSandboxes is how many claims the overlay's profile may have.
const MaxSandboxes = 64

// configure writes the overlay of this installation: images, profiles, agents, tools.
func (i *Installation) configure(t testing.TB, cfg Config) {
	t.Helper()
	settings := map[string]string{}
	for setting, name := range imageSettings() {
		settings[setting] = i.Cluster.Image(t, name).Reference
	}
	settings["RUNTIME_CLASSES"] = cmp.Or(kube.RuntimeClass(), "none")
	maps.Copy(settings, cfg.Settings)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&lines, "%s=%s\n", name, settings[name])
	}
	i.write(t, "settings.env", []byte(lines.String()))
	if _, err := os.Stat(filepath.Join(i.folder, "ids.env")); err != nil {
		i.write(t, "ids.env", []byte("OPENFGA_STORE_ID=unset\n")) // until there is one
	}

	agents := []map[string]any{}
	for _, a := range i.entries(t, "agents", "agents") {
		if a["agent_id"] == Agent {
			tools, ok := a["tools"].([]any)
			if !ok {
				t.Fatalf("the agent %s of the overlay has no tools", Agent)
			}
			a["tools"] = append(tools, gateNamespace+".*")
			careful, warm := maps.Clone(a), maps.Clone(a)
			careful["agent_id"], careful["name"], careful["approve_tools"] = Careful, Careful, []string{gateNamespace + ".*"}
			warm["agent_id"], warm["name"], warm["profile"] = Warm, Warm, Warm
			agents = append(agents, careful, warm)
		}
		agents = append(agents, a)
	}
	i.writeJSON(t, "agents.json", map[string]any{"agents": append(agents, cfg.Agents...)})
	servers := append(i.entries(t, "catalogue", "servers"), map[string]any{
		"namespace": gateNamespace, "transport": "http", "url": "http://" + gateAddress + "/mcp", "timeout": gateTimeout.String(),
		"egress": map[string]any{"allow_cidrs": []string{kube.Host + "/32"}}, "tools": []string{gate.ToolPass},
	})
	i.writeJSON(t, "catalogue.json", map[string]any{"servers": append(servers, cfg.Servers...)})
	profiles := i.profiles(t, cfg)
	i.kustomization(t, cfg, append(profiles, slices.Sorted(maps.Keys(cfg.Files))...))
}

// profiles writes profiles.json and the files that it names, and gives the names of all.
func (i *Installation) profiles(t testing.TB, cfg Config) []string {
	t.Helper()
	worker := i.Cluster.Image(t, "worker")
	files := map[string][]byte{"worker.sigstore.json": read(t, worker.Bundle), "development.pub": read(t, filepath.Join(i.bin, "oci/development.pub"))}
	maps.Copy(files, cfg.Files)
	profiles := append([]map[string]any{
		{"name": "native", "harness": "native", "max": MaxSandboxes},
		{"name": Warm, "harness": "native", "max": MaxSandboxes, "cold_start": false},
	}, cfg.Profiles...)
	for n, given := range profiles {
		harness, _ := given["harness"].(string)
		p := map[string]any{
			"warm_pool": "native", "template": "native", "runtime_class": kube.RuntimeClass(), "cold_start": true, "max": 4, "lifetime_seconds": 3600,
			"image": worker.Reference, "description_file": mounted + harness + ".json",
			"signature": map[string]any{"bundle_file": mounted + "worker.sigstore.json", "public_key_file": mounted + "development.pub"},
		}
		maps.Copy(p, given)
		profiles[n] = p
		if _, ok := files[harness+".json"]; !ok && given["description_file"] == nil {
			files[harness+".json"] = i.Program(t, nil, "worker", "describe", "--harness", harness)
		}
	}
	for name, text := range files {
		i.write(t, name, text)
	}
	i.writeJSON(t, "profiles.json", map[string]any{"profiles": profiles})
	return append(slices.Sorted(maps.Keys(files)), "profiles.json")
}

// entries reads one of the overlay's configurations.
func (i *Installation) entries(t testing.TB, file, list string) []map[string]any {
	t.Helper()
	var doc map[string][]map[string]any
	if err := json.Unmarshal(read(t, filepath.Join(Overlay, "config", file+".json")), &doc); err != nil {
		t.Fatal(err)
	}
	return doc[list]
}

func (i *Installation) kustomization(t testing.TB, cfg Config, profiles []string) {
	t.Helper()
	base, err := filepath.Abs(kubernetes)
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
	components := []string{"overlays/development/nodeidentity", "overlays/development/dns"} // the test cluster has neither SPIRE nor a DNS
	components = append(components, cfg.Components...)
	if class := kube.RuntimeClass(); class != "" {
		components = append(components, "components/runtime-"+class) // of every template that is there by then
	}
	components = append(components, "components/values", "overlays/development/values")
	for n, c := range components {
		components[n] = filepath.Join(relative, c)
	}
	config := func(name, behavior string, files []string) map[string]any {
		return map[string]any{"name": name, "namespace": System, "behavior": behavior, "files": files}
	}
	slices.Sort(profiles)
	i.writeJSON(t, "kustomization.yaml", map[string]any{ // JSON is YAML
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{filepath.Join(relative, "overlays/development"), "gate.yaml"}, "components": components, "patches": append(small(), cfg.Patches...),
		"generatorOptions": map[string]any{"disableNameSuffixHash": true},
		"configMapGenerator": []any{
			map[string]any{"name": "cofferdam-settings", "namespace": System, "behavior": "merge", "envs": []string{"settings.env", "ids.env"}},
			config("sandbox-profiles", "replace", slices.Compact(profiles)),
			config("agents", "replace", []string{"agents.json"}), config("catalogue", "replace", []string{"catalogue.json"}),
		},
	})
	i.write(t, "gate.yaml", []byte(gatePolicy))
}

// small makes the scheduler take a few dozen sandboxes for the one small node: what pods ask for is what it counts.
func small() []map[string]any {
	return []map[string]any{{
		"target": map[string]any{"kind": "SandboxTemplate"},
		"patch":  `[{"op": "replace", "path": "/spec/podTemplate/spec/containers/0/resources/requests/cpu", "value": "10m"}]`,
	}}
}

func (i *Installation) write(t testing.TB, name string, text []byte) {
	t.Helper()
	path := filepath.Join(i.folder, name)
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, text) {
		return
	}
	i.changed = true
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (i *Installation) writeJSON(t testing.TB, name string, value any) {
	t.Helper()
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	i.write(t, name, raw)
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
