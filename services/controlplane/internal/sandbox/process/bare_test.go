package process

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A worker has no environment, exactly the descriptors that are meant for it, and
// nothing secret among its arguments, which anybody can read (qm 917, llxprt-code
// 3573).
func TestAWorkerStartsFromNothing(t *testing.T) {
	const canary = "canary-7f3a"
	t.Setenv("COFFERDAM_CANARY", canary)
	// A descriptor that somebody has forgotten to mark.
	secret, err := os.Create(filepath.Join(t.TempDir(), canary))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()

	w := start(t, "patient", func(c *Config) {
		c.WorkerArgs = append(c.WorkerArgs, "--issuer", "spiffe://cofferdam.test/svc/capability")
	})
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "up") // until then the loader has files open
	proc := fmt.Sprintf("/proc/%d/", in.PID)
	if env, err := os.ReadFile(proc + "environ"); err != nil || len(env) != 0 {
		t.Errorf("environment: %q, %v", env, err)
	}
	if cwd, err := os.Readlink(proc + "cwd"); err != nil || cwd != w.workspace(in.UID) {
		t.Errorf("working directory: %s, %v", cwd, err)
	}
	if info, err := os.Stat(w.workspace(in.UID)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("workspace: %v, %v", info, err)
	}
	raw, err := os.ReadFile(proc + "cmdline")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		w.cfg.WorkerPath, "--listen", "fd://3", "--workload-api", "unix:///run/" + in.UID + ".sock", "--trust-domain", "cofferdam.test",
		"--harness", "native", "--workspace", w.workspace(in.UID), helperFlag + "patient", "--issuer", "spiffe://cofferdam.test/svc/capability",
	}
	if got := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"); !slices.Equal(got, want) {
		t.Errorf("arguments: %q\nwant %q", got, want)
	}
	descriptors(t, proc, in.Address)
}

// descriptors looks at what a worker has open besides what its own runtime did.
func descriptors(t *testing.T, proc, address string) {
	t.Helper()
	entries, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		target, err := os.Readlink(proc + "fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		got[e.Name()], _, _ = strings.Cut(target, ":[")
	}
	want := map[string]string{"0": "/dev/null", "1": "/dev/null", "2": "pipe", "3": "socket"}
	for fd, target := range got {
		if want[fd] != target {
			t.Errorf("descriptor %s is %s", fd, target)
		}
	}
	if len(got) != len(want) {
		t.Errorf("descriptors: %v", got)
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Hostname() != "127.0.0.1" || u.Port() == "0" {
		t.Errorf("address %s is not on loopback", address)
	}
}

// A control plane that dies in any way takes its sandboxes with it.
func TestSandboxesEndWithTheControlPlane(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, ownerFlag+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	address = strings.TrimSpace(address)
	if err != nil || !listens(t, address) {
		t.Fatalf("the sandbox does not listen at %q: %v", address, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	eventually(t, "the sandbox has ended", func() bool { return !listens(t, address) })

	// What it left is removed by the next one.
	left, err := os.ReadDir(filepath.Join(dir, "workspaces"))
	if err != nil || len(left) != 1 {
		t.Fatalf("workspaces: %v, %v", left, err)
	}
	p, err := New(config(dir, "patient", &identities{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if left, err = os.ReadDir(filepath.Join(dir, "workspaces")); err != nil || len(left) != 0 {
		t.Errorf("workspaces: %v, %v", left, err)
	}
}
