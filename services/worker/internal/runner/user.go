//go:build linux

package runner

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// canSwitch reports whether this process may run programs as another user, and
// handle what is theirs. Where it may not, everything is one user, which is told
// to the worker and not hidden.
func canSwitch(uid, gid int) bool {
	if os.Geteuid() == uid {
		return false // there is only one user here
	}
	var caps [2]unix.CapUserData
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return false
	}
	for _, c := range []uint{unix.CAP_KILL, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER} {
		if caps[0].Effective&(1<<c) == 0 {
			return false
		}
	}
	return mapped("/proc/self/uid_map", uid) && mapped("/proc/self/gid_map", gid) && !groupsDenied()
}

// mapped reports whether an id exists in this user namespace; see
// user_namespaces(7).
func mapped(file string, id int) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			continue
		}
		from, err1 := strconv.ParseUint(fields[0], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 33)
		if err1 == nil && err2 == nil && uint64(id) >= from && uint64(id) < from+count { //nolint:gosec // validated to be positive
			return true
		}
	}
	return false
}

// groupsDenied: the program would keep the runner's groups, and with them the way
// to its socket.
func groupsDenied() bool {
	b, err := os.ReadFile("/proc/self/setgroups")
	return err != nil || strings.TrimSpace(string(b)) != "allow"
}
