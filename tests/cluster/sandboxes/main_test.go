//go:build cluster

package sandboxes

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

func TestMain(m *testing.M) { installation.Main(m) }

// Agents, each with the profile of its name, and pool and template as they say.
const (
	warm   = "warm-pool" // claims of a pool that the test keeps full
	cold   = "cold-pool" // of one that is always empty
	crowd  = "crowd"     // at most [crowdSize] claims
	script = "script"    // plays any steps, hostile ones among them, within small limits
	brief  = "brief"     // the same with little processor time
	hasty  = "hasty"     // the same for a short life
	disk   = "disk"      // the same with a disk of its own
)

const (
	// light is the overlay's template for a node that has many of them.
	light     = "light"
	crowdSize = 20
	// hastySeconds is long enough for a pod to start on a busy machine.
	hastySeconds = 60
	// storageClass is the one that the operator says is encrypted.
	storageClass = "encrypted"
)

// theInstallation is shared by all tests here.
func theInstallation(t *testing.T) *installation.Installation {
	t.Helper()
	agent := func(id, harness, version string, more map[string]any) map[string]any {
		a := map[string]any{
			"agent_id": id, "name": id, "organization": "default", "harness": harness, "adapter_version": version, "model_alias": "demo", "profile": id,
		}
		maps.Copy(a, more)
		return a
	}
	profile := func(name, harness, pool, template string, more map[string]any) map[string]any {
		p := map[string]any{"name": name, "harness": harness, "warm_pool": pool, "template": template}
		maps.Copy(p, more)
		return p
	}
	hostile := map[string]any{"harness_options": map[string]any{"hostile": true}}
	reader := map[string]any{"tools": []string{"fs.list_directory", "fs.read_text_file"}}
	return installation.Shared(t, installation.Config{
		Agents: []map[string]any{
			agent(warm, "native", "1.1.0", reader), agent(cold, "native", "1.1.0", reader), agent(crowd, "native", "1.1.0", reader),
			agent(script, "scripted", "1.0.0", hostile), agent(brief, "scripted", "1.0.0", hostile), agent(hasty, "scripted", "1.0.0", hostile),
			agent(disk, "scripted", "1.0.0", hostile),
		},
		Profiles: []map[string]any{
			profile(warm, "native", warm, light, map[string]any{"max": 64}),
			profile(cold, "native", cold, light, map[string]any{"max": 64}),
			profile(crowd, "native", crowd, light, map[string]any{"max": crowdSize}),
			profile(script, "scripted", script, script, nil), profile(brief, "scripted", brief, brief, nil),
			profile(hasty, "scripted", script, script, map[string]any{"lifetime_seconds": hastySeconds}),
			profile(disk, "scripted", disk, disk, map[string]any{"persistent_volumes": true}),
		},
		Components: []string{"components/pvc"},
		Settings:   map[string]string{"STORAGE_CLASSES": storageClass, "OTLP_ENDPOINT": "http://" + collectorAddress},
	})
}

// report writes the line that a command of `make` ends with.
func report(t *testing.T, value any) {
	t.Helper()
	line, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s\n", line)
}

// emptyPool makes a pool of a template that keeps no sandbox.
func emptyPool(t *testing.T, c *kube.Cluster, name, template string) {
	t.Helper()
	c.MustApply(t, installation.Sandboxes, `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: `+name+`}
spec: {replicas: 0, sandboxTemplateRef: {name: `+template+`}, updateStrategy: {type: Recreate}}
`)
}
