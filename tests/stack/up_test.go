package stack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// SIGTERM ends everything in order, and what was said before is still known to
// the next stack in the same folder.
func TestSIGTERMLeavesNothingButTheData(t *testing.T) {
	data := folder(t)
	s := up(t, data)
	checkReadyLine(t, s)
	all := withWorker(t, s)
	groups := workerGroups(t, all)
	ctx, cancel := context.WithTimeout(t.Context(), stack.GoneWithin)
	defer cancel()
	if err := s.Terminate(ctx); err != nil {
		t.Errorf("ended with %v; it said:\n%s", err, s.Said())
	}
	if err := s.Gone(t.Context(), all...); err != nil {
		t.Error(err)
	}
	if rest := s.After(); len(rest) > 0 {
		t.Errorf("stdout has more than the ready line: %q", rest)
	}
	if left, err := filepath.Glob(data + "/run/*/*"); err != nil || len(left) > 0 {
		t.Errorf("sockets: %v, %v", left, err)
	}
	wantGone(t, groups)

	next := up(t, data)
	if text := turn(t, next, "c-1", "What do you remember?"); !strings.Contains(text, "hello") {
		t.Errorf("after the restart: %q", text)
	}
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Nobody is left to clean up when the command itself is killed.
func TestSIGKILLLeavesNothing(t *testing.T) {
	data := folder(t)
	s := up(t, data)
	all := withWorker(t, s)
	groups := workerGroups(t, all)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Gone(t.Context(), all...); err != nil {
		t.Error(err)
	}
	// What it left in the folder is in nobody's way.
	next := up(t, data)
	if text := turn(t, next, "c-1", "What do you remember?"); !strings.Contains(text, "hello") {
		t.Errorf("after the restart: %q", text)
	}
	if left, err := filepath.Glob(data + "/run/w/*"); err != nil || len(left) != 1 {
		t.Errorf("sockets of workers: %v, %v", left, err)
	}
	wantGone(t, groups)
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// workerGroups are the folders of the cgroups that the worker is in and that are its
// own. On a machine without cgroups there are none.
func workerGroups(t *testing.T, all []procs.Process) []string {
	t.Helper()
	i := slices.IndexFunc(all, func(p procs.Process) bool { return p.Program() == "worker" })
	if i < 0 {
		t.Fatal("no worker")
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", all[i].PID))
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for line := range strings.Lines(string(raw)) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		if strings.Contains(path, "cofferdam/") {
			found, err := filepath.Glob("/sys/fs/cgroup/*/" + path)
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

func wantGone(t *testing.T, groups []string) {
	t.Helper()
	for _, dir := range groups {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

// checkReadyLine checks the one line that a script waits for.
func checkReadyLine(t *testing.T, s *stack.Stack) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(s.Line))
	fields := map[string]any{}
	if err := d.Decode(&fields); err != nil || d.More() {
		t.Fatalf("%q: %v", s.Line, err)
	}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, []string{"agents", "api", "operator", "ready"}) {
		t.Errorf("fields %v", got)
	}
	if !s.Ready.Ready || !slices.Equal(s.Agents, []string{stack.Agent}) {
		t.Errorf("%s", s.Line)
	}
	for _, base := range []string{s.API, s.Operator} {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" || u.Hostname() != "127.0.0.1" || u.Port() == "" || u.Path != "" {
			t.Errorf("%q is not the base URL of a loopback address", base)
		}
	}
	if s.API == s.Operator {
		t.Error("callers and operators share an address")
	}
}
