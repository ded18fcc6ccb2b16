//go:build linux

package isolation

import (
	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// refusal is one entry of the deny list. The documentation's table is made from the same entries, and checked by a test.
type refusal struct {
	calls []string
	// when narrows every call to certain arguments: all conditions of one row, any row.
	when   [][]seccomp.Condition
	answer unix.Errno
	reason string
}

// newNamespaces are the flags of clone(2) that make a namespace. CLONE_NEWTIME cannot be given to clone(2).
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// typeMask is where the type of a socket stands beside its flags.
const typeMask = 0xf

// refusals is what a profile refuses. Calls that an architecture does not have are left out there.
func refusals(p Profile) []refusal {
	if p == ProfileWorker {
		return append(denylist(), workerOnly()...)
	}
	return denylist()
}

// denylist is what every profile refuses.
func denylist() []refusal {
	return []refusal{
		{
			calls: []string{
				"mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
				"fsmount", "fspick", "mount_setattr",
			},
			reason: "would change what the root shows; nothing inside has a use for it",
		},
		{
			calls:  []string{"unshare", "setns"},
			reason: "a new user namespace gives all capabilities over a large part of the kernel that is closed otherwise",
		},
		{
			calls:  []string{"clone"},
			when:   [][]seccomp.Condition{{{Argument: cloneFlags, Operation: seccomp.BitsSet, Value: newNamespaces}}},
			reason: "the same, when it makes a namespace; threads and processes are allowed",
		},
		{
			calls: []string{"clone3"}, answer: unix.ENOSYS,
			reason: "its flags are in memory, where a filter cannot see them; C libraries fall back to clone",
		},
		{
			calls: []string{
				"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
			},
			reason: "reads or changes another process of the same user, or compares kernel addresses",
		},
		{calls: []string{"bpf"}, reason: "loads programs into the kernel"},
		{calls: []string{"perf_event_open"}, reason: "watches other processes and the kernel, with a history of holes"},
		{calls: []string{"userfaultfd"}, reason: "stops the kernel in the middle of a copy, which makes its races usable"},
		{
			calls:  []string{"keyctl", "add_key", "request_key"},
			reason: "keyrings have no namespace: the session keyring is that of whoever started the sandbox",
		},
		{
			calls: []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}, answer: unix.ENOSYS,
			reason: "does what other calls do past this filter; runtimes fall back to epoll and threads",
		},
		{
			calls: []string{
				"init_module", "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load", "reboot", "swapon",
				"swapoff",
			},
			reason: "changes the machine",
		},
		{
			calls:  []string{"open_by_handle_at", "name_to_handle_at"},
			reason: "opens files by their number, whatever is mounted where",
		},
		{
			calls:  []string{"clock_settime", "clock_adjtime", "settimeofday", "adjtimex", "stime"},
			reason: "the clock is the machine's; expiry of tokens depends on it",
		},
		{calls: []string{"personality"}, reason: "can switch off the randomisation of addresses"},
		{
			calls: []string{
				"acct", "quotactl", "quotactl_fd", "syslog", "lookup_dcookie", "nfsservctl", "sysfs", "_sysctl", "ustat", "uselib",
				"vhangup", "fanotify_init",
			},
			reason: "administration of the machine, or of the past",
		},
		{calls: []string{"iopl", "ioperm", "modify_ldt", "vm86", "vm86old"}, reason: "reaches hardware, or a part of the kernel that only old programs use"},
		{calls: []string{"sethostname", "setdomainname"}, reason: "the name is given by whoever starts the sandbox"},
		{
			calls:  []string{"move_pages", "migrate_pages"},
			reason: "moves the memory of other processes, and tells where it lies",
		},
		{
			calls: []string{"ioctl"},
			when: [][]seccomp.Condition{
				equal32(1, unix.TIOCSTI), equal32(1, tioclinux),
			},
			reason: "types into the terminal of somebody else",
		},
		{
			calls: []string{"socket", "socketpair"},
			when: [][]seccomp.Condition{
				{notEqual(0, unix.AF_UNIX), notEqual(0, unix.AF_INET), notEqual(0, unix.AF_INET6), notEqual(0, unix.AF_NETLINK)},
				append(equal32(0, unix.AF_NETLINK), notEqual(2, unix.NETLINK_ROUTE)),
			},
			reason: "vsock reaches the hypervisor past the network namespace; packet, alg, bluetooth and forty others are kernel code " +
				"that nothing here needs. Unix, IPv4, IPv6 and, by the next entry, route netlink are left",
		},
		{
			calls: []string{"socket"},
			when: [][]seccomp.Condition{
				append(masked32(1, typeMask, unix.SOCK_RAW), notEqual(0, unix.AF_NETLINK)),
				masked32(1, typeMask, unix.SOCK_PACKET),
			},
			reason: "raw packets; it takes a capability as well, which nothing has",
		},
	}
}

// workerOnly is what the profile of our own programs refuses in addition.
func workerOnly() []refusal {
	return []refusal{{
		calls:  []string{"socket"},
		when:   [][]seccomp.Condition{equal32(0, unix.AF_NETLINK)},
		reason: "the worker asks for no network interfaces; Node.js and others do (os.networkInterfaces), so programs may",
	}}
}

// tioclinux of linux/tty.h, which x/sys does not have on every architecture.
const tioclinux = 0x541c

func notEqual(arg uint32, value uint64) seccomp.Condition {
	return seccomp.Condition{Argument: arg, Operation: seccomp.NotEqual, Value: value}
}

// equal32 compares as the kernel does for an argument of type int: the upper half of the register does not count. A
// comparison of all 64 bits, which is what Equal does, would be got around by setting one of those.
func equal32(arg uint32, value uint64) []seccomp.Condition {
	return masked32(arg, 1<<32-1, value)
}

// masked32 holds where the bits of the mask are those of the value.
func masked32(arg uint32, mask, value uint64) []seccomp.Condition {
	var all []seccomp.Condition
	for bit := uint64(1); bit < 1<<32; bit <<= 1 {
		if mask&value&bit != 0 {
			all = append(all, seccomp.Condition{Argument: arg, Operation: seccomp.BitsSet, Value: bit})
		}
	}
	if rest := mask &^ value; rest != 0 {
		all = append(all, seccomp.Condition{Argument: arg, Operation: seccomp.BitsNotSet, Value: rest})
	}
	return all
}
