//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// runnerCaps are what the runner of a nested world keeps, in a user namespace that has two ids: enough to start and end
// programs as another user, and to write and read their files.
var runnerCaps = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
}

// capset is the permitted and effective set of the calling thread.
type capset [2]unix.CapUserData

func (c *capset) has(n int) bool { return c[n/32].Permitted&(1<<(n%32)) != 0 }

func currentCaps() (c capset, err error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(&h, &c[0])
	return c, err
}

func (c *capset) set() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capset(&h, &c[0])
}

// only gives a set of these and no others, as far as c has them.
func (c *capset) only(keep []int) capset {
	var out capset
	for _, n := range keep {
		if c.has(n) {
			out[n/32].Permitted |= 1 << (n % 32)
			out[n/32].Effective |= 1 << (n % 32)
		}
	}
	return out
}

// bound takes everything but keep out of the bounding set, so that no execve can ever bring it back. It is left as it
// is to who has not got the capability to, which then has nothing that could be brought back.
func bound(keep []int) error {
	c, err := currentCaps()
	if err != nil {
		return err
	}
	if !c.has(unix.CAP_SETPCAP) {
		return nil
	}
	for n := range 64 {
		if slices.Contains(keep, n) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel's last was the one before
		}
		if err != nil {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	return nil
}

// become changes the ids of the calling thread for good and keeps its capabilities, which dropCaps ends.
//
// The wrappers of package syscall would change all threads; the others end when this one becomes the program.
func become(id int) error {
	before, err := currentCaps()
	if err != nil {
		return err
	}
	if id < 0 || !before.has(unix.CAP_SETUID) {
		return nil // ids are all one, and ours already
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	uid := uintptr(id)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 && errno != unix.EPERM {
		// Where the caller is not root the kernel does not let groups be dropped: part of what the layer uid is about.
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return before.set()
}

// dropCaps leaves nothing but keep.
func dropCaps(keep []int) error {
	before, err := currentCaps()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient set: %w", err)
	}
	after := before.only(keep)
	return after.set()
}
