package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A hosted program has a world of its own in the sandbox. It sees neither the
// worker nor what the worker has; what it runs into is told to its runner, and is
// the end of neither the worker nor the sandbox.
func TestAHostedProgramHasAWorldOfItsOwn(t *testing.T) {
	config := filepath.Join(t.TempDir(), "harness.json")
	if err := os.WriteFile(config, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := start(t, "host", func(c *Config) {
		c.RunnerPath = filepath.Join(filepath.Dir(c.WorkerPath), "runner")
		c.RunnerArgs = []string{"--log-level", "debug"}
		p := Profile{
			Name: "hosted", Harness: "native", HarnessConfig: config,
			Limits:  Limits{MemoryMiB: 128, PIDs: 100, CPUs: 1, WorkspaceMiB: 8},
			Program: &ProgramWorld{ReadOnlyPaths: []string{"/usr/lib"}, Limits: ProgramLimits{PIDs: 40, MemoryMiB: 48}},
		}
		c.Profiles = []Profile{p.withDefaults()}
	})
	w.strong(t)
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "done")
	saw := w.log(in.UID)
	for _, line := range []string{
		"processes 1, id 0, found /etc/passwd /usr/lib, workspace <nil>, env [\"PATH=/usr/local/bin:/usr/bin:/bin\"], args [\"--log-level\" \"debug\"]\n",
		"bomb: exit status 7; max ", "hog: signal: killed; max ", "the program's file: <nil>\n",
	} {
		if !strings.Contains(saw, line) {
			t.Errorf("it does not say %q; it said:\n%s", line, saw)
		}
	}
	if strings.Contains(last(saw, "bomb"), "max 0") || !strings.Contains(saw, "oom_kill 1") {
		t.Errorf("the runner is not told of the limits; it said:\n%s", saw)
	}
	if !w.alive(t, in) {
		t.Error("the program's limits were the worker's end")
	}
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	w.empty(t)
	if left := w.groups(t); len(left) > 0 {
		t.Errorf("groups are left: %v", left)
	}
}

// last is the last line that begins with a word.
func last(text, word string) string {
	found := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word) {
			found = line
		}
	}
	return found
}
