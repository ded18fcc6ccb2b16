//go:build linux

package process

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstExtra is the first descriptor after the standard streams.
const firstExtra = 3

// closeOnExec marks every descriptor of this process except the standard streams to be closed in whatever it executes.
//
// Go opens files with that mark. What lacks it came from elsewhere: from our own parent, or from a raw system call; and
// a child would get it unseen. The descriptors that a Spec names are not affected, because the child duplicates them
// without the mark. A descriptor that appears between this call and the fork is not covered, which is why it must not be
// opened without the mark in the first place.
func closeOnExec() error {
	err := unix.CloseRange(firstExtra, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) { // Linux before 5.9 and before 5.11
		return closeOnExecEach()
	}
	if err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	return nil
}

// closeOnExecEach does the same one by one.
func closeOnExecEach() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < firstExtra {
			continue
		}
		// One that was closed since, such as that of the listing itself, is no error.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil && !errors.Is(err, unix.EBADF) {
			return fmt.Errorf("mark descriptor %d: %w", fd, err)
		}
	}
	return nil
}
