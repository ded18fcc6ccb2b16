package e2e

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
)

// link is that to the page for people, as a person is told it.
var link = regexp.MustCompile(`/ui/#code=\S+\n`)

// secretsOf collects the keys of a stack and the tokens of its callers.
func (w *world) secretsOf(t *testing.T) secrets.Secrets {
	t.Helper()
	found, err := secrets.OfStack(w.Data)
	if err != nil {
		t.Fatal(err)
	}
	found["credential of a tool"], found["token of the user"] = toolCredential, bearer(t, w.user.Authorization())
	return found
}

func bearer(t *testing.T, header string) string {
	t.Helper()
	value, ok := strings.CutPrefix(header, "Bearer ")
	if !ok || !secrets.Token.MatchString(value) {
		t.Fatal("the user has no token that the pattern matches")
	}
	return value
}

// filesUnder reads the regular files under a folder of the data, by their path in
// it.
func filesUnder(t *testing.T, data, folder string) map[string][]byte {
	t.Helper()
	found, err := secrets.FilesUnder(data, folder)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A worker in the middle of a run holds what it needs for it in memory, and
// nowhere else; of what it must never have, not even there.
func TestNothingShowsASecretWhileAWorkerWorks(t *testing.T) {
	w := theStack(t)
	s := w.secretsOf(t)
	c := w.talk()
	mark := "mark-" + rand.Text()
	run := c.begin(t, ">>call gate.fingerprint {}\n>>say "+mark+"\n>>sleep 60000")
	c.sees(t, run.RunID, "text.delta")
	worker := c.worker(t, run.BindingID)

	if env, err := procs.Environment(worker.PID); err != nil || len(env) > 0 {
		t.Errorf("the worker's environment is %q, %v", env, err)
	}
	if found := s.In(strings.Join(worker.Args, "\n")); len(found) > 0 {
		t.Errorf("the worker's arguments show %v", found)
	}
	w.checkFilesOf(t, s, worker)
	w.checkMemoryOf(t, s, worker, mark)
	w.checkProcesses(t, s)
	w.checkMetrics(t, s, mark, c.conversation, run.RunID, run.BindingID)

	if _, err := w.user.Cancel(t.Context(), run.RunID); err != nil {
		t.Fatal(err)
	}
	c.end(t, run).cancelled(t)
	w.checkLogs(t, s, mark, c.conversation)
}

// checkFilesOf checks what a worker has open and what it wrote.
func (w *world) checkFilesOf(t *testing.T, s secrets.Secrets, worker procs.Process) {
	t.Helper()
	files, err := procs.Files(worker.PID)
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	root := filepath.Join("/proc", strconv.Itoa(worker.PID), "root")
	for fd, target := range files {
		for _, folder := range []string{"keys", "state", "config", "files"} {
			if strings.HasPrefix(target, filepath.Join(w.Data, folder)) {
				t.Errorf("the worker has %s open as %d", target, fd)
			}
		}
		inside := filepath.Join(root, target)
		if info, err := os.Stat(inside); err != nil || !info.Mode().IsRegular() {
			continue // a socket, a pipe, a device
		}
		raw, err := os.ReadFile(inside)
		if err != nil {
			t.Fatal(err)
		}
		if found := s.In(string(raw)); len(found) > 0 {
			t.Errorf("%s, which the worker has open, shows %v", target, found)
		}
	}
	if worker.Folder != "/workspace" {
		t.Fatalf("the worker works in %s", worker.Folder)
	}
	for path, raw := range filesUnder(t, root, "workspace") {
		if found := s.In(string(raw)); len(found) > 0 {
			t.Errorf("%s shows %v", path, found)
		}
	}
}

// checkMemoryOf looks for what a worker must never be given. That it speaks the
// mark shows that the search finds what is there.
func (w *world) checkMemoryOf(t *testing.T, s secrets.Secrets, worker procs.Process, mark string) {
	t.Helper()
	texts := []string{mark}
	for _, secret := range s {
		texts = append(texts, secret)
	}
	found, err := procs.Holds(worker.PID, texts...)
	if err != nil {
		t.Fatalf("the worker's memory: %v", err)
	}
	known := false
	for _, text := range found {
		if text == mark {
			known = true
			continue
		}
		t.Errorf("the worker's memory holds %v", s.In(text))
	}
	if !known {
		t.Error("the worker's memory lacks what it said itself, so the search proves nothing")
	}
}

// checkProcesses checks what anybody on the machine can see of the stack.
func (w *world) checkProcesses(t *testing.T, s secrets.Secrets) {
	t.Helper()
	all, err := w.Processes()
	if err != nil || len(all) < 10 {
		t.Fatalf("processes %v, %v", all, err)
	}
	for _, p := range all {
		if found := s.In(strings.Join(p.Args, "\n")); len(found) > 0 {
			t.Errorf("the arguments of %s show %v", p.Program(), found)
		}
		env, err := procs.Environment(p.PID)
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
		shown := s.In(strings.Join(env, "\n"))
		if len(shown) == 1 && p.Args[1] == gateArgument {
			continue // over stdio, MCP hands a server its credential in the environment
		}
		if len(shown) > 0 {
			t.Errorf("the environment of %s shows %v", p.Program(), shown)
		}
	}
}

// checkLogs checks all logs, which here are those of level debug: no secret, and
// nothing of what was said or who said it.
func (w *world) checkLogs(t *testing.T, s secrets.Secrets, private ...string) {
	t.Helper()
	logs := filesUnder(t, w.Data, "logs")
	bytes, workers := 0, 0
	for path, raw := range logs {
		bytes += len(raw)
		if strings.HasPrefix(path, "logs/workers/") {
			workers++
		}
		if found := s.In(string(raw)); len(found) > 0 {
			t.Errorf("%s shows %v", path, found)
		}
		for _, text := range private {
			if strings.Contains(string(raw), text) {
				t.Errorf("%s tells of a conversation: %q", path, text)
			}
		}
	}
	if workers == 0 || bytes == 0 {
		t.Errorf("%d logs of workers, %d bytes in all: nothing was checked", workers, bytes)
	}
	// The link to the page for people is said on purpose: its code signs in there, once,
	// and is no token anywhere.
	said := link.ReplaceAllString(w.Said(), "")
	if found := s.In(said); len(found) > 0 {
		t.Errorf("what the command says shows %v", found)
	}
}
