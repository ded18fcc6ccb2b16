package worker_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/worker"
)

// What a worker says of itself has a schema of its options and a level for each
// capability, also where a preset of the operator decides them.
func TestDescribe(t *testing.T) {
	t.Parallel()
	preset := filepath.Join("..", "..", "deploy", "presets", "claude.json")
	for harness, args := range map[string][]string{
		"native":   nil,
		"scripted": {"--harness", "scripted"},
		"acp":      {"--harness", "acp", "--harness-config", preset},
	} {
		var out bytes.Buffer
		must(t, worker.Describe(args, &out))
		var d struct {
			ID           string          `json:"harness_id"`
			Version      string          `json:"adapter_version"`
			Mode         string          `json:"execution_mode"`
			Schema       json.RawMessage `json:"options_schema"`
			Capabilities map[string]struct {
				Level string `json:"level"`
			} `json:"capabilities"`
		}
		must(t, json.Unmarshal(out.Bytes(), &d))
		if d.ID != harness || d.Version == "" || d.Mode != "sandbox_pod" || !json.Valid(d.Schema) || d.Capabilities["stream.text"].Level == "" {
			t.Errorf("%s: %s", harness, out.Bytes())
		}
	}
	var help bytes.Buffer
	must(t, worker.Describe([]string{"-help"}, &help))
	for _, flag := range []string{"-harness ", "-harness-config "} {
		if !strings.Contains(help.String(), flag) {
			t.Errorf("-help says nothing of %s: %s", flag, help.String())
		}
	}
	broken := filepath.Join(t.TempDir(), "preset.json")
	must(t, os.WriteFile(broken, []byte(`{}`), 0o600))
	for _, args := range [][]string{
		{"--harness", "none"},
		{"--harness", "acp"},
		{"--harness-config", preset},
		{"more"},
		{"--fly"},
		{"--harness", "acp", "--harness-config", broken},
		{"--harness", "stdio", "--harness-config", "/nonexistent"},
	} {
		var out bytes.Buffer
		if err := worker.Describe(args, &out); err == nil || out.Len() > 0 {
			t.Errorf("%v: %s", args, out.Bytes())
		}
	}
}
