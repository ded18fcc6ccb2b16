package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCommandLine(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.json")
	text := `{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"service"}]}`
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"--trust-domain", "cofferdam.test", "--rules", rules, "--node-id", "node1"}
	var out strings.Builder
	cfg, err := parse(good, &out)
	if err != nil || cfg.StateDir != "/var/lib/cofferdam-nodeidentity" || cfg.KubeletDir != "/var/lib/kubelet" {
		t.Errorf("%+v, %v", cfg, err)
	}
	for name, args := range map[string][]string{
		"nothing":         nil,
		"no trust domain": good[2:],
		"no node":         good[:4],
		"an argument":     append(slices.Clip(good), "more"),
		"other rules":     append(slices.Clip(good), "--rules", "/dev/null"),
		"a relative path": append(slices.Clip(good), "--state-dir", "state"),
	} {
		if code := run(t.Context(), args, &out); code != exitUsage {
			t.Errorf("%s: exit %d", name, code)
		}
	}
}
