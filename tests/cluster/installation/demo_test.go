//go:build cluster

package installation

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"cofferdam.dev/tests/cluster/internal/installation"
)

// TestDemo plays the README's conversation with workers that are pods: the first one's pod is deleted between the turns,
// and the model proxy's with it. `cofferdam demo` judges it; here it is only seen that there was something to judge.
func TestDemo(t *testing.T) {
	i := installation.Shared(t, config)
	api := "http://" + i.Address(t, installation.System, "controlplane")
	kill, err := filepath.Abs(installation.Overlay + "/demo")
	if err != nil {
		t.Fatal(err)
	}
	out := i.Program(t, nil, "cofferdam", "demo", "--data", i.Data, "--server", api+":8080", "--operator", api+":8081",
		"--sample", installation.Overlay+"/files", "--kill-worker", filepath.Join(kill, "kill-worker.sh"),
		"--restart-model-proxy", filepath.Join(kill, "restart-model-proxy.sh"))
	generations := map[int]uint32{}
	for line := range bytes.Lines(out) {
		var event struct {
			Turn       int    `json:"turn"`
			Generation uint32 `json:"lease_generation"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		generations[event.Turn] = event.Generation
	}
	// The first may be the second already: a claim that cannot be used is replaced.
	if len(generations) != 2 || generations[1] == 0 || generations[2] != generations[1]+1 {
		t.Errorf("generations by turn: %v", generations)
	}
}
