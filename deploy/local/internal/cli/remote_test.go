package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/deploy/local/internal/apiclient"
)

// Whoever kills is told which binding, on its standard input, and what it says does not get among the events.
func TestAProgramIsToldWhichWorker(t *testing.T) {
	got := filepath.Join(t.TempDir(), "got")
	script := filepath.Join(t.TempDir(), "kill")
	text := "#!/bin/sh\necho killing\ncat >'" + got + "'\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal(apiclient.Binding{BindingID: "hs_1"})
	if err != nil {
		t.Fatal(err)
	}
	var out, people strings.Builder
	env := Env{Stdout: &out, Stderr: &people}
	if err := program(t.Context(), script, shown, env); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(got)
	if err != nil || !strings.Contains(string(raw), `"binding_id":"hs_1"`) {
		t.Errorf("%s, %v", raw, err)
	}
	if out.Len() > 0 || people.String() != "killing\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), people.String())
	}
	if err := program(t.Context(), filepath.Join(t.TempDir(), "none"), nil, env); err == nil {
		t.Error("a program that is not there was run")
	}
}

func TestCommandLinesOfAnInstallation(t *testing.T) {
	for name, args := range map[string][]string{
		"a server alone":       {"demo", "--server", "http://127.0.0.1:1"},
		"a program alone":      {"demo", "--kill-worker", "/bin/true"},
		"nothing to print":     {"cluster"},
		"something else":       {"cluster", "--print", "keys"},
		"settings of no store": {"cluster", "--print", "settings", "--agents", "a", "--catalogue", "c"},
	} {
		var out, people strings.Builder
		if code := Main(t.Context(), args, Env{Stdout: &out, Stderr: &people}); code != exitUsage {
			t.Errorf("%s: exit %d, %s", name, code, people.String())
		}
	}
}
