//go:build linux

package isolation_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/isolation"
)

// What the agent must not get at, tried by the agent, in a sandbox with all layers.
func TestAgentCannotReach(t *testing.T) {
	needs(t, isolation.Layers()...)
	const hidden, closed = "no such file or directory", "permission denied"
	for name, tc := range map[string]struct {
		args    []string
		refused string
	}{
		"the runner's environment": {[]string{"process", "1", "environ"}, hidden},
		"the runner's memory map":  {[]string{"process", "1", "maps"}, hidden},
		"the runner's memory":      {[]string{"process", "1", "mem"}, hidden},
		"the runner's files":       {[]string{"process", "1", "fd"}, hidden},
		"the runner's command":     {[]string{"process", "1", "cmdline"}, hidden},
		"the folder of the runner": {[]string{"read", "/run/runner"}, closed},
		"the runner's secret":      {[]string{"read", "/run/runner/secret"}, closed},
		"the runner's socket":      {[]string{"dial", "unix", "/run/runner/runner.sock"}, closed},
		"the worker's files":       {[]string{"read", "/worker/token"}, hidden},
		"the Workload API":         {[]string{"dial", "unix", "/run/workload/api.sock"}, hidden},
	} {
		t.Run(name, func(t *testing.T) {
			reached, detail := attempt(t, sharing(t, append([]string{"agent", "/run/runner"}, tc.args...)...))
			if reached || !strings.Contains(detail, tc.refused) {
				t.Errorf("reached %v, %q; want it refused with %q", reached, detail, tc.refused)
			}
		})
	}
	// The same is there for the worker.
	for _, args := range [][]string{{"read", "/worker/token"}, {"dial", "unix", "/run/workload/api.sock"}} {
		spec := sharing(t, "wait")
		spec.Program.Args = args
		if reached, detail := attempt(t, spec); !reached {
			t.Errorf("%v: the worker does not reach it either: %s", args, detail)
		}
	}
}

// sharing is a worker with files and a socket, and a nested world that shares the runner's folder with it.
func sharing(t *testing.T, args ...string) isolation.Spec {
	spec := nested(args...)
	shareRunnerFolder(&spec)
	sockets := open(t)
	listen(t, "unix", filepath.Join(sockets, "api.sock"))
	if err := os.Chmod(filepath.Join(sockets, "api.sock"), 0o666); err != nil {
		t.Fatal(err)
	}
	spec.Mounts = append(spec.Mounts, isolation.Mount{Target: "/run/workload", Source: sockets})
	spec.Files = []isolation.File{{Path: "/worker/token", Content: "of the worker", Mode: 0o444}}
	spec.Access.ReadOnly = []string{"/worker"}
	return spec
}

// The shared folder is a way between worker and runner, and loopback one between worker and agent.
func TestWorldsMeetWhereTheyShall(t *testing.T) {
	needs(t, isolation.Layers()...)
	t.Run("socket of the runner", func(t *testing.T) {
		spec := nested("serve", "unix", "/run/runner/runner.sock", "of the runner")
		spec.Program.Args = []string{"dial", "unix", "/run/runner/runner.sock", "wait"}
		shareRunnerFolder(&spec)
		if reached, detail := attempt(t, spec); !reached || detail != "of the runner" {
			t.Errorf("reached %v, %q", reached, detail)
		}
	})
	t.Run("loopback", func(t *testing.T) {
		spec := nested("agent", "", "dial", "tcp", "127.0.0.1:7001", "wait")
		spec.Program.Args = []string{"serve", "tcp", "127.0.0.1:7001", "of the worker"}
		if reached, detail := attempt(t, spec); !reached || detail != "of the worker" {
			t.Errorf("reached %v, %q", reached, detail)
		}
	})
}

// Neither world can signal the other, or find it.
func TestWorldsCannotSeeEachOther(t *testing.T) {
	needs(t, isolation.Layers()...)
	spec := nested("wait")
	spec.Program.Args = []string{"facts"}
	f := see(t, isolation.Launch{Spec: spec, FirstID: nextID()})
	equal(t, "processes that the worker sees", f.Processes, []string{"1"})
}

// Calls that only the filter refuses: the answer is its own, and another without it.
func TestCallsThatOnlyTheFilterRefuses(t *testing.T) {
	needs(t, isolation.Layers()...)
	for name, tc := range map[string]struct {
		call []int
		with unix.Errno
	}{
		"be traced":                   {[]int{unix.SYS_PTRACE, unix.PTRACE_TRACEME}, unix.EPERM},
		"keyring of who started this": {[]int{unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_SESSION_KEYRING}, unix.EPERM},
		"clone with hidden flags":     {[]int{unix.SYS_CLONE3}, unix.ENOSYS},
		"another way to do calls":     {[]int{unix.SYS_IO_URING_SETUP}, unix.ENOSYS},
		"personality":                 {[]int{unix.SYS_PERSONALITY, 0x0040000}, unix.EPERM}, // ADDR_NO_RANDOMIZE
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"call"}
			for _, a := range tc.call {
				args = append(args, strconv.Itoa(a))
			}
			if reached, detail := attempt(t, outer(args...)); reached || detail != tc.with.Error() {
				t.Errorf("reached %v, %s", reached, detail)
			}
			if _, detail := attempt(t, without(isolation.Seccomp, args...)); detail == tc.with.Error() {
				t.Errorf("without the filter the answer is the same: %s", detail)
			}
		})
	}
}

// Each family of sockets that is not needed is refused, also with bits that the kernel does not look at.
func TestFamiliesOfSockets(t *testing.T) {
	needs(t, isolation.Seccomp)
	const netlink, vsock, packet, alg = "16", "40", "17", "38"
	for _, tc := range []struct {
		profile isolation.Profile
		args    []string
		reached bool
	}{
		{isolation.ProfileWorker, []string{"1", "1", "0"}, true},
		{isolation.ProfileWorker, []string{"2", "1", "0"}, true},
		{isolation.ProfileWorker, []string{"10", "2", "0"}, true},
		{isolation.ProfileWorker, []string{netlink, "3", "0"}, false},
		{isolation.ProfileProgram, []string{netlink, "3", "0"}, true},
		{isolation.ProfileProgram, []string{netlink, "3", "9"}, false}, // audit
		{isolation.ProfileProgram, []string{vsock, "1", "0"}, false},
		{isolation.ProfileProgram, []string{packet, "3", "0"}, false},
		{isolation.ProfileProgram, []string{alg, "5", "0"}, false},
		{isolation.ProfileProgram, []string{"2", "3", "1"}, false}, // raw
	} {
		t.Run(string(tc.profile)+" "+strings.Join(tc.args, " "), func(t *testing.T) {
			reached, detail := attempt(t, world(tc.profile, append([]string{"family"}, tc.args...)...))
			if reached != tc.reached || (!reached && detail != unix.EPERM.Error()) {
				t.Errorf("reached %v, %s", reached, detail)
			}
		})
	}
}
