package escape

import (
	"os"
	"slices"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
)

// What the worker writes for a program, it writes into the program's folders, also
// where the program has put a link in the way (CVE-2025-53109).
func TestALinkLeadsTheWorkerNowhere(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	for _, target := range []string{"/run/runner", "/", "/home/agent", "/proc/self/root/tmp", "../../run/runner"} {
		c := w.talk(program)
		c.attacks(t, attack{"do": "links", "paths": [][]string{
			{"/workspace/input", target},                    // where files of a message go
			{"/home/agent/hostile.py", "/workspace/behind"}, // which the worker writes before each turn
		}})
		file := apiclient.File{Name: "note.txt", MIMEType: "text/plain", Data: []byte("of the user")}
		r := c.say(t, encode(t, []attack{{"do": "listing", "path": "/workspace"}}), file)
		// What stands directly in the workspace gives way: that is the program's, and so
		// is the folder that the file then stands in.
		if end := r.ending(t); end != "run.finished" {
			t.Errorf("a file that was to go through a link to %s: %s", target, r)
		}
		worker := c.worker(t, r.BindingID)
		if info, err := os.Lstat(impostor.Inside(w.runner(t, worker), "workspace", "input")); err != nil || !info.IsDir() {
			t.Errorf("a file that was to go through a link to %s stands in %v (%v)", target, info, err)
		}
		for _, folder := range []string{"run/runner", "home/agent", "tmp"} {
			entries, err := os.ReadDir(impostor.Inside(w.runner(t, worker), folder))
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "runner.sock" && e.Name() != "hostile.py" }) {
				t.Errorf("link to %s: in %s there is %v", target, folder, entries)
			}
		}
		if _, err := os.Lstat(impostor.Inside(worker, "workspace", "behind")); err == nil {
			t.Errorf("link to %s: the program's file was written through its link", target)
		}
		c.tell(t, harmless(program)) // what takes no file goes on
	}
}
