//go:build cluster

// Package hosted tests the profiles of components/hosted on a real Kubernetes: pods whose agent is a program of somebody
// else, in a second container. `make test-hosted` starts the cluster and runs these inside its network, in the folder
// tests/cluster.
package hosted

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

func TestMain(m *testing.M) { os.Exit(installation.Main(m)) }

// config adds a profile and an agent for each of the component's templates, with a program of the worker's conformance suite
// as the agent's image.
func config(t *testing.T) installation.Config {
	t.Helper()
	c := kube.Connect(t)
	cfg := installation.Config{
		Components: []string{"components/hosted"}, Settings: map[string]string{}, Files: map[string][]byte{},
	}
	const mounted = "/etc/cofferdam/sandbox-profiles/"
	for profile, hosts := range map[string]struct{ setting, image string }{
		"acp": {"IMAGE_AGENT_ACP", "cofferdam-acpagent"}, "stdio": {"IMAGE_AGENT_STDIO", "cofferdam-lineprogram"},
	} {
		preset, err := filepath.Abs("hosted/testdata/" + profile + ".json")
		if err != nil {
			t.Fatal(err)
		}
		image, described := c.Image(t, hosts.image), describe(t, profile, preset)
		cfg.Settings[hosts.setting] = image.Reference
		cfg.Files[profile+".json"] = described
		cfg.Files[profile+".sigstore.json"] = read(t, image.Bundle)
		cfg.Profiles = append(cfg.Profiles, map[string]any{
			"name": profile, "harness": profile, "warm_pool": profile, "template": profile, "init_containers": []string{"runner"},
			"agent_image":     image.Reference,
			"agent_signature": map[string]any{"bundle_file": mounted + profile + ".sigstore.json", "public_key_file": mounted + "development.pub"},
		})
		var about struct {
			AdapterVersion string `json:"adapter_version"`
		}
		if err := json.Unmarshal(described, &about); err != nil {
			t.Fatal(err)
		}
		cfg.Agents = append(cfg.Agents, map[string]any{
			"agent_id": profile, "name": profile, "organization": "default", "harness": profile, "adapter_version": about.AdapterVersion,
			"model_alias": "demo", "profile": profile, "tools": []string{"fs.read_text_file"}, "prompt": "You help people with the files of a sample folder.",
		})
		patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/data/harness.json", "value": string(read(t, preset))}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Patches = append(cfg.Patches, map[string]any{
			"target": map[string]any{"kind": "ConfigMap", "name": "harness-" + profile}, "patch": string(patch),
		})
	}
	return cfg
}

// describe has the worker say what it hosts with a preset.
func describe(t *testing.T, harness, preset string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("COFFERDAM_BIN_DIR"), "worker"), "describe", "--harness", harness, "--harness-config", preset)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return out
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
