//go:build linux

package isolation_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/isolation"
)

// Facts are what the intruder sees, as it writes them.
type Facts struct {
	PID, UID, GID        int
	Groups               []int
	Status               map[string]string
	Env                  []string
	FDs                  map[string]string
	Root, Dev, Processes []string
	Cgroup               string
	Core, Queues         uint64
	Umask                int
	Dir, Hostname        string
	Mounts               []string
}

func see(t *testing.T, launch isolation.Launch) Facts {
	t.Helper()
	s := begin(t, launch)
	verdict, detail, _ := strings.Cut(s.says(t), " ")
	var f Facts
	if err := json.Unmarshal([]byte(detail), &f); err != nil || verdict != "reached" {
		t.Fatal(verdict, detail, err)
	}
	return f
}

const noCaps = "0000000000000000"

// The worker has nothing of its parent's, no privilege, and sees itself alone.
func TestWhatTheWorkerSees(t *testing.T) {
	needs(t, isolation.Layers()...)
	leakDescriptor(t)
	t.Setenv("COFFERDAM_TEST_SECRET", "inherited")
	named, err := os.Open(intruder)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	spec := outer("facts")
	spec.Program.Env, spec.Program.Dir = []string{"ONLY=this"}, "/tmp"
	spec.Files = []isolation.File{{Path: "/etc/hosts", Content: "127.0.0.1 localhost\n", Mode: 0o444}}
	spec.Access.ReadOnly = []string{"/"} // to see it; a worker need not
	f := see(t, isolation.Launch{Spec: spec, FirstID: nextID(), ExtraFiles: []*os.File{named}})

	equal(t, "environment", f.Env, []string{"ONLY=this"})
	equal(t, "root", f.Root, []string{"/bin", "/dev", "/etc", "/proc", "/tmp"})
	equal(t, "devices", f.Dev, []string{"/dev/fd", "/dev/full", "/dev/null", "/dev/random", "/dev/stderr", "/dev/stdin", "/dev/stdout", "/dev/urandom", "/dev/zero"})
	equal(t, "processes", f.Processes, []string{"1"})
	if f.PID != 1 || f.UID != isolation.WorkerID || f.GID != isolation.WorkerID || len(f.Groups) != 0 {
		t.Errorf("pid %d, uid %d, gid %d, groups %v", f.PID, f.UID, f.GID, f.Groups)
	}
	for name, want := range map[string]string{
		"CapInh": noCaps, "CapPrm": noCaps, "CapEff": noCaps, "CapBnd": noCaps, "CapAmb": noCaps, "NoNewPrivs": "1", "Seccomp": "2", "Groups": "",
	} {
		if f.Status[name] != want {
			t.Errorf("%s is %q, want %q", name, f.Status[name], want)
		}
	}
	if f.FDs["0"] != "/dev/null" || !strings.HasPrefix(f.FDs["1"], "pipe:") || !strings.HasPrefix(f.FDs["2"], "pipe:") ||
		f.FDs["3"] != intruder || len(f.FDs) != 4 {
		t.Errorf("descriptors: %v", f.FDs)
	}
	if f.Core != 1 || f.Queues != 0 || f.Umask != 0o022 || f.Dir != "/tmp" || f.Hostname != "sandbox" {
		t.Errorf("core %d, queues %d, umask %o, folder %s, hostname %s", f.Core, f.Queues, f.Umask, f.Dir, f.Hostname)
	}
	for line := range strings.Lines(f.Cgroup) {
		if !strings.HasSuffix(strings.TrimSpace(line), ":/") {
			t.Errorf("cgroup of the host is seen: %s", line)
		}
	}
	for _, m := range f.Mounts {
		fields := strings.Fields(m)
		target, options := fields[1], strings.Split(fields[3], ",")
		device := strings.HasPrefix(target, "/dev/")
		if !slices.Contains(options, "nosuid") || slices.Contains(options, "nodev") == device ||
			slices.Contains(options, "ro") != (target != "/tmp" && target != "/proc") {
			t.Errorf("mount %s", m)
		}
	}
}

// The runner is root in its own world with six capabilities, and has nothing of the worker's.
func TestWhatTheRunnerSees(t *testing.T) {
	needs(t, isolation.Layers()...)
	named, err := os.Open(intruder)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	spec := nested("facts")
	spec.Program.Env = []string{"TOKEN=of the worker"}
	spec.Mounts = append(spec.Mounts, isolation.Mount{Target: "/run/workload", Source: open(t)})
	spec.Nested.Access.ReadOnly = []string{"/"}
	spec.Nested.Terminals, spec.Nested.Hostname = true, "agent"
	f := see(t, isolation.Launch{Spec: spec, FirstID: nextID(), ExtraFiles: []*os.File{named}})

	equal(t, "environment", f.Env, nil)
	equal(t, "root", f.Root, []string{"/bin", "/dev", "/proc", "/tmp"})
	equal(t, "processes", f.Processes, []string{"1"})
	if !slices.Contains(f.Dev, "/dev/ptmx") || f.Hostname != "agent" || f.Dir != "/" {
		t.Errorf("devices %v, hostname %s, folder %s", f.Dev, f.Hostname, f.Dir)
	}
	if f.PID != 1 || f.UID != isolation.RunnerInside || f.GID != isolation.RunnerInside || len(f.Groups) != 0 {
		t.Errorf("pid %d, uid %d, gid %d, groups %v", f.PID, f.UID, f.GID, f.Groups)
	}
	const six = "00000000000000eb"
	for name, want := range map[string]string{
		"CapInh": noCaps, "CapPrm": six, "CapEff": six, "CapBnd": six, "CapAmb": noCaps, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if f.Status[name] != want {
			t.Errorf("%s is %q, want %q", name, f.Status[name], want)
		}
	}
	if f.FDs["0"] != "/dev/null" || len(f.FDs) != 3 {
		t.Errorf("descriptors: %v", f.FDs)
	}
}

// The agent is nobody, also in the runner's eyes.
func TestWhatTheAgentSees(t *testing.T) {
	needs(t, isolation.Layers()...)
	f := see(t, isolation.Launch{Spec: nested("agent", "", "facts"), FirstID: nextID()})
	if f.UID != isolation.AgentInside || f.GID != isolation.AgentInside || len(f.Groups) != 0 {
		t.Errorf("uid %d, gid %d, groups %v", f.UID, f.GID, f.Groups)
	}
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if f.Status[name] != noCaps {
			t.Errorf("%s is %q", name, f.Status[name])
		}
	}
	if slices.Contains(f.Processes, "1") {
		t.Errorf("the runner is seen: %v", f.Processes)
	}
}

// The runner sees the processes that it has to end.
func TestRunnerSeesTheAgent(t *testing.T) {
	needs(t, isolation.Layers()...)
	if reached, detail := attempt(t, nested("overlook")); !reached {
		t.Error(detail)
	}
}

func TestNothingIsWritable(t *testing.T) {
	needs(t, isolation.Layers()...)
	for _, path := range []string{"/x", "/bin/x", "/dev/x", "/proc/x", "/proc/sys/kernel/hostname", inside, "/dev/shm/x"} {
		spec := outer("write", path)
		spec.Access.ReadWrite = []string{"/"}
		if reached, detail := attempt(t, spec); reached {
			t.Errorf("%s was written", detail)
		}
	}
	if reached, detail := attempt(t, outer("write", "/tmp/x")); !reached {
		t.Errorf("the file system that is there to be written: %s", detail)
	}
}

func TestTmpfsIsBounded(t *testing.T) {
	needs(t, isolation.MountNamespace)
	for want, args := range map[string][]string{
		"bytes: write /tmp/big: no space left on device": {"fill", "/tmp", "10000000", "0"},
		"inodes: open /tmp/":                             {"fill", "/tmp", "0", "1000"},
	} {
		if reached, detail := attempt(t, outer(args...)); reached || !strings.HasPrefix(detail, want) {
			t.Errorf("%v: %s", args, detail)
		}
	}
}

// A fork bomb ends at the limit of its sandbox's own id.
func TestProcessesAreBounded(t *testing.T) {
	needs(t, isolation.UID, isolation.ResourceLimits)
	spec := nested("agent", "", "children", "100")
	spec.Nested.Limits.Processes = 60
	if reached, detail := attempt(t, spec); reached || !strings.HasSuffix(detail, "resource temporarily unavailable") {
		t.Errorf("reached %v, %s", reached, detail)
	}
	spec.Nested.Program.Args[3] = "3"
	if reached, detail := attempt(t, spec); !reached {
		t.Errorf("three processes of sixty: %s", detail)
	}
}

// A descriptor that leads out of the sandbox is not given to it.
func TestDescriptorsThatLeadOutAreRefused(t *testing.T) {
	l := launcher(t)
	folder, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	files := map[string]*os.File{"a folder": folder}
	for name, kind := range map[string][2]int{
		"of a network": {unix.AF_INET, unix.SOCK_STREAM}, "that is connectionless": {unix.AF_UNIX, unix.SOCK_DGRAM},
		"that is not connected": {unix.AF_UNIX, unix.SOCK_STREAM},
	} {
		fd, err := unix.Socket(kind[0], kind[1]|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		files["a socket "+name] = f
	}
	for name, f := range files {
		spec := outer("facts")
		p, err := l.Start(t.Context(), isolation.Launch{Spec: spec, FirstID: 1, ExtraFiles: []*os.File{f}})
		if err == nil {
			_ = p.Stop(0)
			t.Errorf("%s was given", name)
		}
	}
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// leakDescriptor opens a file the way that leaks it into children.
func leakDescriptor(t *testing.T) {
	t.Helper()
	fd, err := unix.Open(intruder, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
}
