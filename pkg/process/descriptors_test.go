//go:build linux

package process

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Both ways of marking descriptors mark one that is not marked, and leave the standard streams alone.
func TestCloseOnExec(t *testing.T) {
	for name, mark := range map[string]func() error{"close_range": closeOnExec, "each": closeOnExecEach} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.Open(filepath.Join(t.TempDir(), "f"), unix.O_CREAT|unix.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(fd) }()
			before := flags(t, 0)
			if err := mark(); err != nil {
				t.Fatal(err)
			}
			if flags(t, fd)&unix.FD_CLOEXEC == 0 {
				t.Error("descriptor is not marked")
			}
			if flags(t, 0) != before {
				t.Error("standard input was changed")
			}
		})
	}
}

func flags(t *testing.T, fd int) int {
	t.Helper()
	f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
