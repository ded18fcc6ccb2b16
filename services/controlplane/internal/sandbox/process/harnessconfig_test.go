package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A harness configuration that workers cannot read is told when the control plane
// starts, by its name, by whom it belongs to and by whom it has to be read, and with
// what to do. Every worker of the profile would only not become ready.
func TestAHarnessConfigThatNoWorkerCanReadIsToldAtTheStart(t *testing.T) {
	folder := t.TempDir()
	file := func(name string, mode os.FileMode, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	closed := file("closed.json", 0o600, "{}")
	for name, c := range map[string]struct {
		path string
		says []string
	}{
		"missing":     {filepath.Join(folder, "none.json"), []string{"none.json does not exist"}},
		"a folder":    {folder, []string{"is not a regular file"}},
		"too large":   {file("large.json", 0o644, strings.Repeat(" ", maxHarnessConfig+1)), []string{"at most 262144"}},
		"closed":      {closed, []string{closed, fmt.Sprintf("belongs to uid %d and has mode 0600", os.Geteuid()), "workers run as uids ", "chmod o+r"}},
		"of a reader": {file("open.json", 0o644, "{}"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "closed" && os.Geteuid() != 0 {
				t.Skip("NOT TESTED: workers of a user that is not root are this user")
			}
			cfg := config(shortDir(t), programs(t), "serve", &identities{})
			p := Profile{Name: "hosted", Harness: "native", HarnessConfig: c.path, Limits: small()}
			cfg.Profiles = append(cfg.Profiles, p.withDefaults())
			provider, err := New(t.Context(), cfg)
			if err == nil {
				if cerr := provider.Close(); cerr != nil {
					t.Error(cerr)
				}
			}
			if len(c.says) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, part := range append(c.says, `sandbox profile "hosted": harness_config`) {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("it does not say %q: %v", part, err)
				}
			}
		})
	}
}

// One that is taken away later is named in the log, and the claim fails.
func TestAHarnessConfigThatIsTakenAwayIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "harness.json")
	if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := start(t, "serve", func(c *Config) { c.Profiles[0].HarnessConfig = path })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := w.Claim(t.Context(), claim("hc-1"))
	if err == nil || !strings.Contains(err.Error(), path+" does not exist") {
		t.Errorf("claim: %v", err)
	}
	w.empty(t)
}
