package materialize_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/hosted/materialize"
	"cofferdam.dev/services/worker/internal/stdio/stdiotest"
)

func TestCopy(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	from := filepath.Join(parent, "workspace")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(from, "skills", "one"), 0o700),
		os.WriteFile(filepath.Join(from, "skills", "one", "SKILL.md"), []byte("skill"), 0o400),
		os.WriteFile(filepath.Join(parent, "secret"), []byte("secret"), 0o600),
		os.Symlink(filepath.Join(parent, "secret"), filepath.Join(from, "link")),
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		workspace, path string
		code            fault.Code
	}{
		"a file":            {from, "skills/one/SKILL.md", ""},
		"one that is gone":  {from, "skills/two/SKILL.md", fault.SandboxNotReady},
		"one outside":       {from, "../secret", fault.SandboxNotReady},
		"a link to outside": {from, "link", fault.SandboxNotReady},
		"no such workspace": {from + "x", "skills/one/SKILL.md", fault.SandboxNotReady},
		"no workspace":      {"", "skills/one/SKILL.md", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := stdiotest.NewWorld(t)
			err := materialize.Copy(t.Context(), w, c.workspace, []harness.Materialized{{Path: c.path}})
			if fault.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
			to := filepath.Join(w.Root, hosted.Workspace)
			if got, _ := os.ReadFile(filepath.Join(to, c.path)); c.code == "" && c.workspace != "" && string(got) != "skill" {
				t.Errorf("it holds %q", got)
			}
			if left, err := os.ReadDir(to); (c.code != "" || c.workspace == "") && len(left) > 0 {
				t.Errorf("there is %v, %v", left, err)
			}
		})
	}
}
