//go:build linux

package isolation_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/pkg/isolation"
)

// attack makes the Spec of a sandbox in which something is tried, and says how that is refused.
type attack struct {
	spec    func(t *testing.T) isolation.Spec
	refused string
	// place makes what puts its worlds somewhere; nil leaves them where they are.
	place func(t *testing.T) func(isolation.World, int) error
}

// Each layer alone keeps something out: with all of them it is refused, and with this one left out and all others on
// it is reached. What is attacked is real, and answers.
func TestLayerAloneHolds(t *testing.T) {
	attacks := map[isolation.Layer]attack{
		isolation.UserNamespace:    {hostRootsFile, "permission denied", nil},
		isolation.PIDNamespace:     {hostProcess, "no such file", nil},
		isolation.MountNamespace:   {hostUnixSocket, "no such file", nil},
		isolation.NetworkNamespace: {hostListener, "connection refused", nil},
		isolation.IPCNamespace:     {hostSharedMemory, "no such file", nil},
		isolation.UTSNamespace:     {hostName, "the name is sandbox", nil},
		isolation.CgroupNamespace:  {controlGroups, "nothing but /", intoGroup},
		isolation.ReadOnlyRoot:     {preload, "read-only file system", nil},
		isolation.Seccomp:          {newUserNamespace, "operation not permitted", nil},
		isolation.Landlock:         {abstractSocketOfWorker, "operation not permitted", nil},
		isolation.NoNewPrivileges:  {setuidProgram, "effective uid is 1", nil},
		isolation.UID:              {folderOfRunner, "permission denied", nil},
		isolation.ResourceLimits:   {openFiles, "too many open files", nil},
	}
	for _, layer := range isolation.Layers() {
		t.Run(string(layer), func(t *testing.T) {
			needs(t, isolation.Layers()...)
			a, ok := attacks[layer]
			if !ok {
				t.Fatal("no attack shows what this layer is for")
			}
			var place func(isolation.World, int) error
			if a.place != nil {
				place = a.place(t)
			}
			reached, detail := attemptIn(t, a.spec(t), place)
			if reached || !strings.Contains(detail, a.refused) {
				t.Errorf("with all layers: reached %v, %q; want it refused with %q", reached, detail, a.refused)
			}
			without := a.spec(t)
			without.Without = []isolation.Layer{layer}
			if layer == isolation.MountNamespace { // paths are the host's then
				without.Program.Path = intruder
				without.Access = isolation.Access{}
			}
			if reached, detail := attemptIn(t, without, place); !reached {
				t.Errorf("without the layer the attack is refused as well, so it shows nothing: %q", detail)
			}
		})
	}
}

// The runner of a nested world is root there, with CAP_DAC_OVERRIDE. That does not count for files of the host.
func hostRootsFile(t *testing.T) isolation.Spec {
	secret := filepath.Join(open(t), "secret")
	if err := os.WriteFile(secret, []byte("of the host's root"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := nested("read", "/secret")
	s.Nested.Mounts = append(s.Nested.Mounts, isolation.Mount{Target: "/secret", Source: secret, ReadOnly: true})
	s.Nested.Access.ReadOnly = []string{"/secret"}
	return s
}

func hostProcess(*testing.T) isolation.Spec {
	return outer("process", strconv.Itoa(os.Getpid()), "cmdline")
}

// Landlock does not keep anybody from connecting to a socket by its path, as of a container engine.
func hostUnixSocket(t *testing.T) isolation.Spec {
	path := filepath.Join(open(t), "engine.sock")
	listen(t, "unix", path)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return outer("dial", "unix", path)
}

func hostListener(t *testing.T) isolation.Spec {
	return outer("dial", "tcp", listen(t, "tcp", "127.0.0.1:0"))
}

func hostSharedMemory(t *testing.T) isolation.Spec {
	key := int(nextID())
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, "of the host")
	if err := unix.SysvShmDetach(b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
			t.Error(err)
		}
	})
	return outer("shm", strconv.Itoa(key))
}

func hostName(t *testing.T) isolation.Spec {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return outer("hostname", name)
}

func controlGroups(*testing.T) isolation.Spec { return outer("groups") }

// intoGroup puts worlds into a control group of their own, as the provider does.
func intoGroup(t *testing.T) func(isolation.World, int) error {
	m, err := cgroup.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if missing := m.Missing(); len(missing) == len(cgroup.Controllers()) {
		if os.Getenv(weakVariable) == "1" {
			t.Skip(missing)
		}
		t.Fatalf("%v. Or set %s=1 to leave out what this machine cannot show", missing, weakVariable)
	}
	g, err := m.Create("layers", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return func(_ isolation.World, pid int) error { return g.Add(pid) }
}

// The runner is the root of its world and owns what is in the way of each program that it starts. Landlock, which would
// keep it from there as well, lets it through here.
func preload(*testing.T) isolation.Spec {
	s := nested("write", "/etc/ld.so.preload")
	s.Nested.Files = []isolation.File{{Path: "/etc/hosts", Content: "127.0.0.1 localhost\n", Mode: 0o644}}
	s.Nested.Access.ReadWrite = []string{"/"}
	return s
}

func newUserNamespace(*testing.T) isolation.Spec { return outer("newuser") }

// Both worlds have one network, and abstract sockets belong to networks.
func abstractSocketOfWorker(*testing.T) isolation.Spec {
	s := nested("abstract", "worker")
	s.Program.Args = []string{"serve", "unix", "@worker", "of the worker"}
	return s
}

// A program that its owner, the root of the sandbox, has made setuid.
func setuidProgram(t *testing.T) isolation.Spec {
	b, err := os.ReadFile(intruder)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(open(t), "raise")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	id := int(firstIDs.Load()) // begin takes the next one
	owner := baseID + isolation.IDsPerSandbox*(id+1)
	if err := os.Chown(path, owner, owner); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	s := outer("raise", "/bin/raise", "euid", "0")
	s.Mounts = append(s.Mounts, isolation.Mount{Target: "/bin/raise", Source: path, ReadOnly: true})
	s.Access.ReadOnly = []string{"/bin/raise"}
	return s
}

// The folder that worker and runner share is closed to the agent.
func folderOfRunner(*testing.T) isolation.Spec {
	s := nested("agent", "/run/runner", "read", "/run/runner/secret")
	shareRunnerFolder(&s)
	return s
}

// shareRunnerFolder mounts one folder in both worlds, which only runner and worker may enter.
func shareRunnerFolder(s *isolation.Spec) {
	const folder = "/run/runner"
	s.Mounts = append(s.Mounts, isolation.Mount{Target: folder, NoExec: true, Tmpfs: &isolation.Tmpfs{
		Size: 1 << 16, Inodes: 16, Mode: 0o750, UID: isolation.RunnerID, GID: isolation.WorkerID,
	}})
	s.Access.ReadWrite = append(s.Access.ReadWrite, folder)
	s.Nested.Mounts = append(s.Nested.Mounts, isolation.Mount{Target: folder, Source: folder, FromOuter: true, NoExec: true})
	s.Nested.Access.ReadWrite = append(s.Nested.Access.ReadWrite, folder)
}

func openFiles(*testing.T) isolation.Spec {
	s := outer("open", "100")
	s.Limits.OpenFiles = 64
	return s
}

// listen answers on the host and gives the address.
func listen(t *testing.T, network, address string) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("of the host"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}
