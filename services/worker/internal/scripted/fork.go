package scripted

import (
	"syscall"
	"time"
	"unsafe"
)

// orphan makes a process that makes another one and exits. The other one is nobody's
// then, and exits as well.
func orphan() (pid int, err error) {
	n, errno := orphanRaw()
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// orphanRaw is that fork, and like forkRaw.
//
//go:norace
//go:nosplit
//go:noinline
func orphanRaw() (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	_, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
}

// fork makes a process that sleeps and exits, without exec: where nothing can be
// executed, it is still a process. A bomb goes on forking first.
func fork(sleep time.Duration, bomb bool) (pid int, err error) {
	ts := syscall.NsecToTimespec(int64(sleep))
	n, errno := forkRaw(&ts, bomb)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// forkRaw is the fork. In the child there is no Go runtime to speak of: nothing
// but system calls, no stack that grows, no race detector.
//
//go:norace
//go:nosplit
//go:noinline
func forkRaw(ts *syscall.Timespec, bomb bool) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	for bomb {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0); errno != 0 {
			break
		}
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(ts)), 0, 0) //nolint:gosec // nothing else sleeps without the runtime
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
