package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cofferdam.dev/pkg/waittest"
)

// A control plane that dies in any way takes its sandboxes with it, and what it
// left in the file system is removed by the next one.
func TestSandboxesEndWithTheControlPlane(t *testing.T) {
	dir := shortDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, ownerFlag+dir+","+programs(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var claimed, warm int
	if _, serr := fmt.Sscan(line, &claimed, &warm); err != nil || serr != nil || !exists(claimed) || !exists(warm) {
		t.Fatalf("the sandboxes do not run: %q, %v, %v", line, err, serr)
	}
	groups := groupsOf(t, claimed)
	pids := []int{claimed, warm}
	for _, g := range groups {
		pids = append(pids, members(t, g)...)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	waittest.Until(t, "the sandboxes have ended", func() bool {
		return !slices.ContainsFunc(pids, exists)
	})

	// Nobody was there to remove the rest.
	left, err := os.ReadDir(filepath.Join(dir, "w"))
	if err != nil || len(left) != 2 {
		t.Fatalf("files: %v, %v", left, err)
	}
	p, err := New(t.Context(), config(dir, programs(t), "patient", &identities{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	if left, err = os.ReadDir(filepath.Join(dir, "w")); err != nil || len(left) != 0 {
		t.Errorf("files: %v, %v", left, err)
	}
	for _, g := range groups {
		if _, err := os.Stat(g); err == nil {
			t.Errorf("%s is left", g)
		}
	}
}

// groupsOf are the folders of the groups of a process that are a sandbox's.
func groupsOf(t *testing.T, pid int) []string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && strings.Contains(fields[2], "/cofferdam/") {
			dirs, err := filepath.Glob("/sys/fs/cgroup" + "/*" + fields[2])
			if err != nil {
				t.Fatal(err)
			}
			if fields[1] == "" { // version 2, mounted at the top
				dirs = append(dirs, "/sys/fs/cgroup"+fields[2])
			}
			for _, dir := range dirs {
				if _, err := os.Stat(dir); err == nil {
					found = append(found, dir)
				}
			}
		}
	}
	return found
}
