// Package isolation builds the sandbox of one Linux machine: layer upon layer around one program, and around a second
// one that the first must be safe from.
//
// A sandbox has an outer world, in which the worker runs, and may have a nested one, in which the runner starts agent
// programs. [Launcher.Start] makes the namespaces and starts the launcher program in them, whose main is [Main]. It
// learns by a socket what to build, puts one layer on after the other, starts the nested world in the same way, and
// becomes the program: no launcher stays behind, neither of the two costs memory, and the program is process 1, whose end
// the kernel turns into the end of everything in it. What fails comes back over the same socket as a [SetupError].
//
// # The layers
//
// Each keeps something out that all others let through; TestLayerAloneHolds shows it for each with the attack named
// here, which succeeds as soon as that layer, and no other, is left out.
//
//   - user-namespace: capabilities inside count for nothing outside. The runner is root in its world and may override
//     modes of files; a file of the host's root that is mounted there stays closed to it.
//   - pid-namespace: processes of the host, their command lines, and signals to them. It also ends everything with
//     process 1.
//   - mount-namespace: files and sockets of the host. The root is a read-only tmpfs with what the [Spec] names and
//     nothing else. A Unix socket of the host, such as that of a container engine, cannot be connected to.
//   - network-namespace: listeners on the host's loopback, cloud metadata, databases, resolvers, the internet. There is
//     only a loopback of its own.
//   - ipc-namespace: System V shared memory and POSIX message queues of the host.
//   - uts-namespace: the name of the host.
//   - cgroup-namespace: the names of the host's control groups, and where in them the sandbox stands.
//   - read-only-root: the runner is the root's owner, and may override modes: it could put something in the way of
//     every program that it starts, such as /etc/ld.so.preload.
//   - seccomp: parts of the kernel, by the list below. A new user namespace, with all capabilities in it, cannot be made.
//   - landlock: what mounts and ids still allow. Both worlds share a network, so the agent could reach abstract Unix
//     sockets of the worker; and what is mounted can be narrowed down to paths.
//   - no-new-privileges: setuid programs and file capabilities. Every mount is nosuid as well.
//   - uid: worker, runner and agent are three users. The agent cannot enter the folder that worker and runner share, nor
//     look at the runner's process.
//   - rlimits: open files, processes, file size, core dumps.
//
// Limits of memory, processor time and tasks for a whole sandbox are cgroups; Launch.Place is where they come in.
//
// # What is not a wall
//
// The kernel itself is shared. Whatever a Spec mounts is reachable: a broker's socket is meant to be, and must not trust
// who comes by it. A descriptor that a program is given was opened outside, so Start refuses those that lead anywhere
// else. A program can make itself unreadable to its own children only by itself: the kernel resets
// prctl(PR_SET_DUMPABLE) at execve, so the worker sets it to 0 as the first thing in its main. Below Linux 6.12 Landlock
// does not know abstract sockets.
//
// # System calls that are refused
//
// The answer is EPERM where no other is given; "some" means that it depends on the arguments, which are compared as the
// kernel reads them. Calls of another architecture kill the program, and calls that are newer than this list answer
// ENOSYS. All entries but the last belong to both profiles, the last to the worker's alone.
//
//  1. mount, umount2, pivot_root, chroot, open_tree, open_tree_attr, move_mount, fsopen, fsconfig, fsmount, fspick,
//     mount_setattr: would change what the root shows; nothing inside has a use for it.
//  2. unshare, setns: a new user namespace gives all capabilities over a large part of the kernel that is closed
//     otherwise.
//  3. clone (some): the same, when it makes a namespace; threads and processes are allowed.
//  4. clone3 [ENOSYS]: its flags are in memory, where a filter cannot see them; C libraries fall back to clone.
//  5. ptrace, process_vm_readv, process_vm_writev, process_madvise, pidfd_getfd, kcmp: reads or changes another
//     process of the same user, or compares kernel addresses.
//  6. bpf: loads programs into the kernel.
//  7. perf_event_open: watches other processes and the kernel, with a history of holes.
//  8. userfaultfd: stops the kernel in the middle of a copy, which makes its races usable.
//  9. keyctl, add_key, request_key: keyrings have no namespace: the session keyring is that of whoever started the
//     sandbox.
//  10. io_uring_setup, io_uring_enter, io_uring_register [ENOSYS]: does what other calls do past this filter;
//     runtimes fall back to epoll and threads.
//  11. init_module, finit_module, delete_module, create_module, kexec_load, kexec_file_load, reboot, swapon, swapoff:
//     changes the machine.
//  12. open_by_handle_at, name_to_handle_at: opens files by their number, whatever is mounted where.
//  13. clock_settime, clock_adjtime, settimeofday, adjtimex, stime: the clock is the machine's; expiry of tokens
//     depends on it.
//  14. personality: can switch off the randomisation of addresses.
//  15. acct, quotactl, quotactl_fd, syslog, lookup_dcookie, nfsservctl, sysfs, _sysctl, ustat, uselib, vhangup,
//     fanotify_init: administration of the machine, or of the past.
//  16. iopl, ioperm, modify_ldt, vm86, vm86old: reaches hardware, or a part of the kernel that only old programs use.
//  17. sethostname, setdomainname: the name is given by whoever starts the sandbox.
//  18. move_pages, migrate_pages: moves the memory of other processes, and tells where it lies.
//  19. ioctl (some): types into the terminal of somebody else.
//  20. socket, socketpair (some): vsock reaches the hypervisor past the network namespace; packet, alg, bluetooth and
//     forty others are kernel code that nothing here needs. Unix, IPv4, IPv6 and, by the next entry, route netlink
//     are left.
//  21. socket (some): raw packets; it takes a capability as well, which nothing has.
//  22. socket (some): the worker asks for no network interfaces; Node.js and others do (os.networkInterfaces), so
//     programs may.
//
// Everything else is allowed: the list is long enough for what is known to be dangerous, and short enough for Node.js,
// Bun, Go and Python programs to run unchanged.
//
// Linux 5.19 or newer, on amd64 or arm64.
package isolation
