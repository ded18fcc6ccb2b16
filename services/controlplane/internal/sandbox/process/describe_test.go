package process

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"cofferdam.dev/services/controlplane/internal/harnesses"
)

// A profile is described by the worker's own binary, with the operator's file; one
// that cannot be is left out, and the others stand.
func TestDescribe(t *testing.T) {
	t.Setenv("SECRET", "of the control plane")
	dir := t.TempDir()
	worker, preset := filepath.Join(dir, "worker"), filepath.Join(dir, "preset.json")
	for path, text := range map[string]string{worker: `#!/bin/sh
[ -z "$SECRET" ] || exit 3
case "$*" in
"describe --harness native") id=native ;;
"describe --harness stdio --harness-config ` + preset + `") id=stdio ;;
"describe --harness acp") id=other ;;
*) echo '{"harness_id"'; exit 1 ;;
esac
echo '{"harness_id":"'$id'","adapter_version":"1","contract_versions":[1],"execution_mode":"sandbox_pod","options_schema":{"type":"object"},"capabilities":{}}'
`, preset: `{}`} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := &Provider{cfg: Config{WorkerPath: worker, Logger: slog.New(slog.DiscardHandler), Profiles: []Profile{
		{Name: "a", Harness: "native"}, {Name: "b", Harness: "acp"}, {Name: "c", Harness: "stdio", HarnessConfig: preset}, {Name: "d", Harness: "broken"},
	}}}
	var got []harnesses.Entry
	for _, e := range p.Describe(t.Context()).All() {
		got = append(got, harnesses.Entry{Profile: e.Profile, Enabled: e.Enabled, Descriptor: harnesses.Descriptor{HarnessID: e.HarnessID}})
	}
	if len(got) != 2 || got[0].Profile != "a" || got[0].HarnessID != "native" || !got[0].Enabled || got[1].Profile != "c" || got[1].HarnessID != "stdio" {
		t.Errorf("%+v", got)
	}
}
