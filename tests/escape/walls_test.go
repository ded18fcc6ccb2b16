package escape

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// wall is one attack that has to be refused, in these ways.
type wall struct {
	what    string
	attack  attack
	refused []string
	// outside is the same from outside, where that goes by another name. Where
	// there is no such thing outside, elsewhere names the test that shows that the
	// attack succeeds without the layer.
	outside   attack
	elsewhere string
}

// Nothing of the host, of the worker, of its own runner or of another binding can
// be reached by a hosted program.
func TestAProgramReachesNothing(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	c := w.talk(program)
	own := c.worker(t, c.say(t, harmless(program)).BindingID)
	v := w.victim(t)
	walls := slices.Concat(w.files(t, v), w.processes(t, v.worker, own), w.network(t), w.kernel(t, own))

	var shown []wall
	var tries []attack
	for _, wall := range walls {
		if wall.elsewhere != "" {
			continue
		}
		if wall.outside == nil {
			wall.outside = wall.attack
		}
		shown, tries = append(shown, wall), append(tries, wall.outside)
	}
	for i, o := range outside(t, tries...) {
		if !o.reached {
			t.Errorf("%s: not even reached from outside, so that a refusal means nothing: %s", shown[i].what, o.detail)
		}
	}

	before := w.arrivals(t)
	inside := make([]attack, len(walls))
	for i, wall := range walls {
		inside[i] = wall.attack
	}
	w.besides(t, func() {
		for i, o := range c.attacks(t, inside...) {
			if wall := walls[i]; o.reached || !slices.Contains(wall.refused, o.detail) {
				t.Errorf("%s: reached %v, %s; want it refused with one of %v", wall.what, o.reached, o.detail, wall.refused)
			}
		}
	})
	w.nobodyCame(t, before)
}

// gone is what a path says that is not there.
var gone = []string{"ENOENT"}

func (w *world) files(t *testing.T, v *victim) []wall {
	t.Helper()
	secret := filepath.Join(w.folder, "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := w.operator.Binding(t.Context(), v.run.BindingID)
	if err != nil || b.Sandbox == nil {
		t.Fatalf("%+v, %v", b, err)
	}
	walls := []wall{
		{what: "a file of the host", attack: attack{"do": "read", "path": secret}, refused: gone},
		{what: "passwords of the host", attack: attack{"do": "read", "path": "/etc/shadow"}, refused: gone},
		{what: "the file of another binding", attack: attack{"do": "read", "path": v.root("workspace", "canary")}, refused: gone},
		{what: "the socket of another binding's worker", attack: attack{"do": "unix", "path": impostor.SocketOf(w.Data, b.Sandbox.InstanceUID)}, refused: gone},
		{what: "the folder of all data", attack: attack{"do": "listing", "path": w.Data}, refused: gone},
		{what: "the socket of a container engine", attack: attack{"do": "unix", "path": filepath.Join(w.folder, "engine.sock")}, refused: gone},
	}
	for _, folder := range []string{"keys", "state", "config", "logs"} {
		path := filepath.Join(w.Data, folder)
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		walls = append(walls, wall{what: "the folder " + folder, attack: attack{"do": "listing", "path": path}, refused: gone})
	}
	return walls
}

// processes are those of another binding, and the worker beside and the runner
// above the program.
func (w *world) processes(t *testing.T, victim, own procs.Process) []wall {
	t.Helper()
	var walls []wall
	for who, pid := range map[string]int{"another binding": victim.PID, "its worker": own.PID} {
		for _, name := range []string{"environ", "cmdline", "maps", "status", "root/workspace", "fd/0", "ns/net"} {
			do := "of_process"
			if strings.HasPrefix(name, "root") {
				do = "listing"
			}
			a := attack{"do": do, "pid": pid, "name": name, "path": fmt.Sprintf("/proc/%d/%s", pid, name)}
			if name == "ns/net" {
				a["do"] = "setns"
			}
			walls = append(walls, wall{what: name + " of " + who, attack: a, refused: gone})
		}
		walls = append(walls,
			wall{what: "memory of " + who, attack: attack{"do": "memory", "pid": pid}, refused: gone},
			wall{what: "reading memory of " + who, attack: attack{"do": "process_vm_readv", "pid": pid, "address": mapping(t, pid)}, refused: []string{"EPERM"}},
			wall{what: "tracing " + who, attack: attack{"do": "ptrace", "pid": pid}, refused: []string{"EPERM"}},
			wall{what: "signalling " + who, attack: attack{"do": "signalled", "pid": pid}, refused: []string{"ESRCH"}},
		)
	}
	const uidLayer = "TestLayerAloneHolds/uid of pkg/isolation"
	return append(walls,
		wall{what: "shared memory of the host", attack: attack{"do": "shared_memory", "key": sharedMemory(t)}, refused: gone},
		wall{what: "processes besides its own", attack: attack{"do": "stray_pids"}, refused: []string{"it is alone"}},
		wall{what: "signalling its runner", attack: attack{"do": "signalled", "pid": 1}, refused: []string{"EPERM"}},
		wall{what: "tracing its runner", attack: attack{"do": "ptrace", "pid": 1}, refused: []string{"EPERM"}, elsewhere: uidLayer},
		wall{what: "environment of its runner", attack: attack{"do": "of_process", "pid": 1, "name": "environ"}, refused: []string{"ENOENT", "EACCES"}, elsewhere: uidLayer},
		wall{what: "memory of its runner", attack: attack{"do": "memory", "pid": 1}, refused: []string{"ENOENT", "EACCES"}, elsewhere: uidLayer},
		wall{
			what: "the folder of its runner", attack: attack{"do": "listing", "path": "/run/runner"}, refused: []string{"EACCES"},
			outside: attack{"do": "listing", "path": impostor.Inside(own, "run", "runner")},
		},
		wall{what: "the socket of its runner", attack: attack{"do": "unix", "path": "/run/runner/runner.sock"}, refused: []string{"EACCES"}, elsewhere: uidLayer},
	)
}

// sharedMemory makes a piece of System V shared memory and gives its key.
func sharedMemory(t *testing.T) int {
	t.Helper()
	const create, exclusive, remove, size, mode = 0o1000, 0o2000, 0, 4096, 0o666
	key := os.Getpid()
	id, _, errno := syscall.Syscall(syscall.SYS_SHMGET, uintptr(key), size, create|exclusive|mode)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() {
		if _, _, errno := syscall.Syscall(syscall.SYS_SHMCTL, id, remove, 0); errno != 0 {
			t.Error(errno)
		}
	})
	return key
}

// mapping is the start of the first mapping of a process.
func mapping(t *testing.T, pid int) uint64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(raw), "-")
	at, err := strconv.ParseUint(first, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func (w *world) network(t *testing.T) []wall {
	t.Helper()
	var walls []wall
	for _, f := range w.forbidden {
		if f.Network == "unix" {
			if strings.HasPrefix(f.Address, "@") { // the other one is a file
				walls = append(walls, wall{what: f.What, attack: attack{"do": "unix", "path": f.Address}, refused: []string{"ECONNREFUSED"}})
			}
			continue
		}
		host, port := hostPort(t, f)
		refused := []string{"ENETUNREACH"}
		if strings.HasPrefix(host, "127.") {
			refused = []string{"ECONNREFUSED"}
		}
		walls = append(walls, wall{what: f.What, attack: attack{"do": f.Network, "host": host, "port": port}, refused: refused})
	}
	for _, address := range w.listeners(t) {
		walls = append(walls, wall{
			what: "a listener of the stack at " + address.String(), refused: []string{"ECONNREFUSED"},
			attack: attack{"do": "tcp", "host": address.Addr().String(), "port": address.Port()},
		})
	}
	return walls
}

// Flags of namespaces, for unshare(2) and clone(2).
const (
	newMounts   = 0x00020000
	newCgroup   = 0x02000000
	newIPC      = 0x08000000
	newUsers    = 0x10000000
	newPIDs     = 0x20000000
	newNetworks = 0x40000000
)

func (w *world) kernel(t *testing.T, own procs.Process) []wall {
	t.Helper()
	permission := []string{"EPERM"}
	closed := []string{"EACCES", "EROFS"}
	folder := t.TempDir()
	walls := []wall{
		{what: "a mount", attack: attack{"do": "mount", "path": "/tmp"}, outside: attack{"do": "mount", "path": folder}, refused: permission},
		{what: "another root", attack: attack{"do": "chroot", "path": "/tmp"}, refused: permission},
		{what: "another namespace of its own", attack: attack{"do": "setns", "path": "/proc/self/ns/net"}, refused: permission},
		{what: "the id 0", attack: attack{"do": "setuid", "uid": 0}, refused: permission},
		{what: "the id of the worker", attack: attack{"do": "setuid", "uid": 1}, refused: []string{"EPERM", "EINVAL"}},
		{what: "keyrings", attack: attack{"do": "add_key"}, refused: permission},
		{what: "a raw socket", attack: attack{"do": "open_socket", "family": "AF_INET", "kind": "SOCK_RAW"}, refused: permission},
		{what: "a packet socket", attack: attack{"do": "open_socket", "family": "AF_PACKET", "kind": "SOCK_RAW"}, refused: permission},
		{what: "a device", attack: attack{"do": "device", "path": "/workspace/null"}, outside: attack{"do": "device", "path": filepath.Join(folder, "null")}, refused: permission},
		{what: "larger core files", attack: attack{"do": "raise_limit", "name": "RLIMIT_CORE", "value": 1 << 30}, refused: permission},
		{what: "more open files", attack: attack{"do": "raise_limit", "name": "RLIMIT_NOFILE", "value": 6000}, refused: permission},
		{what: "descriptors without end", attack: attack{"do": "descriptors", "count": 10_000}, refused: []string{"EMFILE"}},
		{what: "a core file", attack: attack{"do": "core_dump", "path": "/workspace"}, refused: []string{"no core"}, elsewhere: "larger core files, above"},
		{what: "the log of the kernel", attack: attack{"do": "open_write", "path": "/dev/kmsg"}, refused: gone},
		{what: "/sys", attack: attack{"do": "listing", "path": "/sys"}, refused: gone},
		{what: "settings of the kernel", attack: attack{"do": "open_write", "path": "/proc/sys/kernel/core_pattern"}, refused: closed},
		{what: "users of its world", attack: attack{"do": "open_write", "path": "/etc/passwd"}, refused: closed},
		{what: "a file beside its runner", attack: attack{"do": "write", "path": "/cofferdam/x"}, outside: attack{"do": "write", "path": filepath.Join(folder, "x")}, refused: closed},
		{what: "a file in its root", attack: attack{"do": "write", "path": "/x"}, outside: attack{"do": "write", "path": filepath.Join(folder, "y")}, refused: closed},
	}
	for name, flags := range map[string]int{
		"mounts": newMounts, "control groups": newCgroup, "IPC": newIPC, "users": newUsers, "processes": newPIDs, "networks": newNetworks,
	} {
		walls = append(walls,
			wall{what: "unsharing " + name, attack: attack{"do": "unshare", "flags": flags}, refused: permission},
			wall{what: "a child with its own " + name, attack: attack{"do": "clone_namespace", "flags": flags}, refused: permission})
	}
	for _, name := range []string{"workload", "toolbroker", "statefacade", "filebroker", "modelproxy", "capability"} {
		walls = append(walls, wall{
			what: "the worker's socket of " + name, attack: attack{"do": "unix", "path": "/run/cofferdam/" + name + ".sock"}, refused: gone,
			outside: attack{"do": "unix", "path": impostor.Inside(own, "run", "cofferdam", name+".sock")},
		})
	}
	for _, path := range groups(t, own) {
		walls = append(walls, wall{what: "its control group " + path, attack: attack{"do": "open_write", "path": path}, refused: gone})
	}
	for _, name := range w.counters(t, own) {
		walls = append(walls, wall{
			what: "the counter " + name, attack: attack{"do": "open_write", "path": "/run/limits/" + name}, refused: closed,
			elsewhere: "a file that is not for writing, also outside",
		})
	}
	return walls
}

// counters are the files that tell a runner what its program ran into.
func (w *world) counters(t *testing.T, worker procs.Process) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(impostor.Inside(w.runner(t, worker), "run", "limits"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// runner is the runner of a worker.
func (w *world) runner(t *testing.T, worker procs.Process) procs.Process {
	t.Helper()
	all, err := w.Processes()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p procs.Process) bool { return p.Parent == worker.PID && p.Program() == "runner" })
	if i < 0 {
		t.Fatalf("%s has no runner", worker)
	}
	return all[i]
}

// groups are the files by which a process is moved between the control groups of
// a sandbox.
func groups(t *testing.T, p procs.Process) (paths []string) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || !strings.Contains(fields[2], "cofferdam") {
			continue
		}
		// Version 1 has a folder for each controller, version 2 may have one.
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/" + fields[1], "/sys/fs/cgroup/unified"} {
			path := filepath.Join(root, fields[2], "cgroup.procs")
			if _, err := os.Stat(path); err == nil && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	if len(paths) == 0 {
		t.Fatalf("no control group found in:\n%s", raw)
	}
	return paths
}

// hostPort are those of an address.
func hostPort(t *testing.T, f *forbidden.Target) (host string, port uint16) {
	t.Helper()
	a, err := netip.ParseAddrPort(f.Address)
	if err != nil {
		t.Fatal(err)
	}
	return a.Addr().String(), a.Port()
}
