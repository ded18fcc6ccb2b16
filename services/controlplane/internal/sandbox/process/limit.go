package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	proc "cofferdam.dev/pkg/process"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// limitOf says which limit ended an instance. It is asked before the instance's
// groups and its workspace are gone.
func (p *Provider) limitOf(in *instance) sandbox.Limit {
	if in.expired.Load() {
		return sandbox.LimitLifetime
	}
	// What a hosted program ran into is said by its runner, and the worker goes on.
	counted, err := in.groups.worker.Counters()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.cfg.Logger.Warn("counters of a sandbox cannot be read", "instance", in.UID, "error", err.Error())
	}
	switch {
	case counted.OOMKills > 0:
		return sandbox.LimitMemory
	case signalled(in.process, syscall.SIGXCPU):
		return sandbox.LimitCPU
	case signalled(in.process, syscall.SIGKILL):
		return "" // somebody ended it, whatever it ran into before
	case counted.ForksRefused > 0:
		return sandbox.LimitPIDs
	case full(in.workspace):
		return sandbox.LimitStorage
	default:
		return ""
	}
}

func signalled(p *proc.Process, sig syscall.Signal) bool {
	exit, ok := errors.AsType[*proc.ExitError](p.Err())
	return ok && exit.Signal == sig
}

// full reports whether a file system has no place left, or no inodes.
func full(f *os.File) bool {
	if f == nil {
		return false
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return false
	}
	return s.Bavail == 0 || s.Files > 0 && s.Ffree == 0
}

// openWorkspace holds the workspace of a sandbox, as it stands in its world: what
// is in it can be counted then also after the last process of that world has
// ended.
func openWorkspace(pid int) (*os.File, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "root", workspaceInside)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: workspaceInside, Err: err}
	}
	return os.NewFile(uintptr(fd), workspaceInside), nil
}
