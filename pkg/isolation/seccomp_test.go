//go:build linux

package isolation

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdicts of seccomp(2), and the errno in the lower half.
const (
	allow  = 0x7fff0000
	kill   = 0x80000000
	eperm  = 0x00050000 | uint32(unix.EPERM)
	enosys = 0x00050000 | uint32(unix.ENOSYS)
)

// seccompCall is what a filter sees of a call.
type seccompCall struct {
	number int
	arch   uint32
	args   [6]uint64
}

// judge runs a profile's filters as the kernel does: all of them, and the strictest verdict counts.
//
//nolint:gosec // half words are what it is about
func judge(t testing.TB, programs [][]bpf.RawInstruction, c seccompCall) uint32 {
	t.Helper()
	data := make([]byte, 64)
	word := func(at int, v uint32) { binary.BigEndian.PutUint32(data[at:], v) } // as the virtual machine loads it
	word(0, uint32(c.number))
	word(4, c.arch)
	for i, a := range c.args {
		word(16+8*i, uint32(a))
		word(20+8*i, uint32(a>>32))
	}
	verdict := uint32(allow)
	for _, raw := range programs {
		var program []bpf.Instruction
		for _, r := range raw {
			program = append(program, r.Disassemble())
		}
		vm, err := bpf.NewVM(program)
		if err != nil {
			t.Fatal(err)
		}
		got, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		// The order of the kernel is that of the verdicts as signed numbers.
		if int32(uint32(got)&0xffff0000) < int32(verdict&0xffff0000) {
			verdict = uint32(got)
		}
	}
	return verdict
}

func assembled(t testing.TB, p Profile) ([][]bpf.RawInstruction, *arch.Info) {
	t.Helper()
	a, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filters(p)
	if err != nil {
		t.Fatal(err)
	}
	return programs, a
}

// Every call of the list is refused with its answer, and every other one that exists is let through.
func TestEveryCallOfTheList(t *testing.T) {
	programs, a := assembled(t, ProfileProgram)
	refused := map[string]uint32{}
	for _, r := range denylist() {
		for _, name := range r.calls {
			if len(r.when) == 0 {
				refused[name] = uint32(r.action())
			}
		}
	}
	for number, name := range a.SyscallNumbers {
		want, ok := refused[name]
		if !ok {
			want = allow
		}
		c := seccompCall{number: number, arch: uint32(a.ID)}
		if name == "socket" || name == "socketpair" {
			c.args[0] = unix.AF_UNIX
		}
		if got := judge(t, programs, c); got != want {
			t.Errorf("%s is answered %#x, want %#x", name, got, want)
		}
	}
}

// What is refused for some arguments is refused whatever stands in the half of the register that the kernel does not
// look at, and is let through otherwise.
func TestArgumentsOfTheList(t *testing.T) {
	const threads = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS
	worker, a := assembled(t, ProfileWorker)
	program, _ := assembled(t, ProfileProgram)
	for _, tc := range []struct {
		name            string
		args            []uint64
		worker, program uint32
	}{
		{"clone", []uint64{threads}, allow, allow},
		{"clone", []uint64{uint64(unix.SIGCHLD)}, allow, allow},
		{"clone", []uint64{unix.CLONE_VFORK | unix.CLONE_VM | uint64(unix.SIGCHLD)}, allow, allow},
		{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm, eperm},
		{"clone", []uint64{unix.CLONE_NEWNET}, eperm, eperm},
		{"clone", []uint64{unix.CLONE_NEWCGROUP}, eperm, eperm},
		{"ioctl", []uint64{0, unix.TIOCSTI}, eperm, eperm},
		{"ioctl", []uint64{0, tioclinux}, eperm, eperm},
		{"ioctl", []uint64{0, unix.TIOCGWINSZ}, allow, allow},
		{"ioctl", []uint64{0, 0x5421}, allow, allow},
		{"ioctl", []uint64{0, unix.TIOCSTI | 1<<16}, allow, allow},
		{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow, allow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}, allow, allow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, allow, allow},
		{"socket", []uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, allow, allow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_RAW, 1}, eperm, eperm},
		{"socket", []uint64{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 1}, eperm, eperm},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_PACKET, 1}, eperm, eperm},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, eperm, allow},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, eperm, eperm},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_NETFILTER}, eperm, eperm},
		{"socket", []uint64{unix.AF_PACKET, unix.SOCK_DGRAM}, eperm, eperm},
		{"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, eperm, eperm},
		{"socket", []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, eperm, eperm},
		{"socket", []uint64{0}, eperm, eperm},
		{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow, allow},
		{"socketpair", []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, eperm, eperm},
	} {
		c := seccompCall{number: a.SyscallNames[tc.name], arch: uint32(a.ID)}
		copy(c.args[:], tc.args)
		for profile, got := range map[Profile]uint32{ProfileWorker: judge(t, worker, c), ProfileProgram: judge(t, program, c)} {
			want := tc.program
			if profile == ProfileWorker {
				want = tc.worker
			}
			if got != want {
				t.Errorf("%s %v in the profile %s: %#x, want %#x", tc.name, tc.args, profile, got, want)
			}
		}
		if tc.program != eperm {
			continue
		}
		for i := range c.args {
			dirty := c
			dirty.args[i] |= 0xdeadbeef << 32
			if got := judge(t, program, dirty); got != eperm {
				t.Errorf("%s %#x is let through by bits that the kernel does not look at", tc.name, dirty.args)
			}
		}
	}
}

// No other door leads into the kernel, and no call that nobody has judged.
func TestOtherDoors(t *testing.T) {
	programs, a := assembled(t, ProfileProgram)
	mount := a.SyscallNames["mount"]
	for name, tc := range map[string]struct {
		call seccompCall
		want uint32
	}{
		"32-bit calls":  {seccompCall{number: mount, arch: uint32(arch.I386.ID)}, kill},
		"x32 calls":     {seccompCall{number: mount | 0x40000000, arch: uint32(a.ID)}, enosys},
		"tomorrow's":    {seccompCall{number: 5000, arch: uint32(a.ID)}, enosys},
		"negative":      {seccompCall{number: -1, arch: uint32(a.ID)}, enosys},
		"the usual one": {seccompCall{number: a.SyscallNames["read"], arch: uint32(a.ID)}, allow},
	} {
		if got := judge(t, programs, tc.call); got != tc.want {
			t.Errorf("%s: %#x, want %#x", name, got, tc.want)
		}
	}
}

// The documentation has the list as it is, with every reason.
func TestListIsDocumented(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(denylist(), workerOnly()...) {
		if r.reason == "" {
			t.Errorf("%v: no reason", r.calls)
		}
	}
	want := documentation()
	if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(string(b), "//", "")), " "), strings.Join(strings.Fields(want), " ")) {
		t.Errorf("doc.go does not have this list:\n%s", want)
	}
}

// documentation is the list as it stands in doc.go.
func documentation() string {
	var out strings.Builder
	for i, r := range append(denylist(), workerOnly()...) {
		out.WriteString("  " + strconv.Itoa(i+1) + ". " + strings.Join(r.calls, ", "))
		if len(r.when) > 0 {
			out.WriteString(" (some)")
		}
		if r.answer != 0 {
			out.WriteString(" [" + unix.ErrnoName(r.answer) + "]")
		}
		out.WriteString(": " + r.reason + ".\n")
	}
	return out.String()
}

// Every name of the list is a call of some architecture: a typing error would let it through.
func TestNamesOfTheList(t *testing.T) {
	for _, r := range append(denylist(), workerOnly()...) {
		for _, name := range r.calls {
			if !slices.ContainsFunc([]*arch.Info{arch.X86_64, arch.AARCH64, arch.I386}, func(a *arch.Info) bool {
				_, ok := a.SyscallNames[name]
				return ok
			}) {
				t.Errorf("%s is no system call", name)
			}
		}
	}
}

// FuzzFilter looks for a call with a network address family, or flags of clone, that a filter judges otherwise than the
// kernel reads them.
//
//nolint:gosec // half words are what it is about
func FuzzFilter(f *testing.F) {
	programs, a := assembled(f, ProfileProgram)
	f.Add(uint64(unix.AF_VSOCK), uint64(1), uint64(0))
	f.Add(uint64(unix.AF_INET), uint64(unix.SOCK_RAW), uint64(1))
	f.Add(uint64(unix.CLONE_NEWUSER), uint64(unix.TIOCSTI), uint64(1)<<40)
	f.Fuzz(func(t *testing.T, first, second, third uint64) {
		args := [6]uint64{first, second, third}
		run := func(name string) bool {
			return judge(t, programs, seccompCall{number: a.SyscallNames[name], arch: uint32(a.ID), args: args}) == allow
		}
		family, kind := int32(first), int32(second)&typeMask
		known := family == unix.AF_UNIX || family == unix.AF_INET || family == unix.AF_INET6 || (family == unix.AF_NETLINK && int32(third) == 0)
		raw := (kind == unix.SOCK_RAW && family != unix.AF_NETLINK) || kind == unix.SOCK_PACKET
		if run("socket") && (!known || raw) {
			t.Errorf("socket %#x %#x %#x is let through", first, second, third)
		}
		if run("clone") != (first&newNamespaces == 0) {
			t.Errorf("clone %#x", first)
		}
		if run("ioctl") != (uint32(second) != unix.TIOCSTI && uint32(second) != tioclinux) {
			t.Errorf("ioctl %#x", second)
		}
	})
}
