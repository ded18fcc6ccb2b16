package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/isolation"
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
	w.strong(t)
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "up") // until then the loader has files open
	proc := fmt.Sprintf("/proc/%d/", in.PID)
	if env, err := os.ReadFile(proc + "environ"); err != nil || len(env) != 0 {
		t.Errorf("environment: %q, %v", env, err)
	}
	raw, err := os.ReadFile(proc + "cmdline")
	if err != nil {
		t.Fatal(err)
	}
	// The same for every instance: nothing in them says whose it is.
	want := []string{
		"/cofferdam/worker", "--listen", "fd://3", "--workload-api", "unix:///run/cofferdam/workload.sock", "--trust-domain", "cofferdam.test",
		"--harness", "native", "--workspace", "/workspace", "--capability", "unix:///run/cofferdam/capability.sock",
		helperFlag + "patient", "--issuer", "spiffe://cofferdam.test/svc/capability",
	}
	if got := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"); !slices.Equal(got, want) {
		t.Errorf("arguments: %q\nwant %q", got, want)
	}
	descriptors(t, proc)
	if in.Address != "unix://"+w.folder.socket(in.UID) || !listens(t, in.Address) {
		t.Errorf("address %s", in.Address)
	}
	if info, err := os.Stat(w.folder.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the sockets: %v, %v", info, err)
	}
}

// descriptors looks at what a worker has open besides what its own runtime did.
func descriptors(t *testing.T, proc string) {
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
}

// Inside there is what the worker needs and nothing else, the same in every
// instance; the services are there, and the host is not.
func TestInsideThereIsNothingElse(t *testing.T) {
	w := start(t, "look")
	w.strong(t)
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "looked")
	saw := w.log(in.UID)
	for _, line := range []string{
		"processes: 1, mine is 1", "ids: 1 1", "root is readable: false", "root is writable: false",
		"service capability: there", "service toolbroker: there", "service statefacade: there", "service filebroker: there",
		"service modelproxy: there", "service workload: there",
	} {
		if !strings.Contains(saw, line+"\n") {
			t.Errorf("it does not see %q; it saw:\n%s", line, saw)
		}
	}
	proc := fmt.Sprintf("/proc/%d/", in.PID)
	entries, err := os.ReadDir(proc + "root")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"cofferdam", "dev", "proc", "run", "workspace"}; !slices.Equal(names, want) {
		t.Errorf("its root has %v, want %v", names, want)
	}
	devices, err := os.ReadFile(proc + "net/dev")
	if err != nil || strings.Count(string(devices), ":") != 1 || !strings.Contains(string(devices), "lo:") {
		t.Errorf("its network has more than loopback: %v\n%s", err, devices)
	}
	for _, name := range Services() {
		if got, want := w.Address(name), "unix:///run/cofferdam/"+name+".sock"; got != want {
			t.Errorf("the address of %s is %s", name, got)
		}
	}
}

// No two sandboxes have an id of the host in common, and each identity is for its
// own sandbox's.
func TestEachSandboxHasItsOwnUser(t *testing.T) {
	w := start(t, "patient")
	w.strong(t)
	seen := map[uint32]bool{}
	for _, name := range []string{"hc-1", "hc-2", "hc-3"} {
		in := w.claim(t, name)
		w.ids.mu.Lock()
		peer := w.ids.peers[in.UID]
		w.ids.mu.Unlock()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.PID))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t%d", peer, peer)) {
			t.Errorf("%s runs as another user than %d, who is told its identity: %v", name, peer, err)
		}
		block := peer / isolation.IDsPerSandbox
		if seen[block] || peer < firstHostID || peer > lastHostID {
			t.Errorf("%s has user %d", name, peer)
		}
		seen[block] = true
	}
}
