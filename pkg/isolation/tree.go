//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// devices are the nodes of /dev. They are mounted from the host's, because a user namespace cannot make any.
var devices = []string{"/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"}

// mounts gives all mounts of a world, with those that every world has.
func (s *Spec) mounts() []Mount {
	all := make([]Mount, 0, len(devices)+len(s.Mounts))
	for _, d := range devices {
		all = append(all, Mount{Target: d, Source: d, ReadOnly: true, NoExec: true})
	}
	return append(all, s.Mounts...)
}

func (m *Mount) device() bool { return slices.Contains(devices, m.Target) }

// openTrees opens the sources of mounts as detached copies, in order. A mount that comes from no host path is -1.
func openTrees(w World, mounts []Mount, without []Layer) (fds []int, err error) {
	for _, m := range mounts {
		fd := -1
		if m.Source != "" && !m.FromOuter {
			if fd, err = m.open(without); err != nil {
				closeAll(fds)
				return nil, &SetupError{World: w, Layer: MountNamespace, Step: "open " + m.Source, Reason: err.Error(), cause: err}
			}
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// sources opens the sources of both worlds' mounts, of the outer one first.
func sources(s *Spec, without []Layer) ([]int, error) {
	trees, err := openTrees(Outer, s.mounts(), without)
	if err != nil || s.Nested == nil {
		return trees, err
	}
	nested, err := openTrees(Nested, s.Nested.mounts(), without)
	if err != nil {
		closeAll(trees)
		return nil, err
	}
	return append(trees, nested...), nil
}

// receivedTrees gives what sources gave on the other side of a socket, which carries no -1.
func receivedTrees(s *Spec, fds []int) ([]int, error) {
	mounts := s.mounts()
	if s.Nested != nil {
		mounts = append(mounts, s.Nested.mounts()...)
	}
	trees := make([]int, 0, len(mounts))
	for _, m := range mounts {
		switch {
		case m.Source == "" || m.FromOuter:
			trees = append(trees, -1)
		case len(fds) == 0:
			return nil, errors.New("sources of mounts are missing")
		default:
			trees, fds = append(trees, fds[0]), fds[1:]
		}
	}
	return trees, nil
}

// open gives a detached copy of the mount's source, with its attributes.
//
// Where root does this before the sandbox is made, the ids inside need no way to the source; and the attributes are
// those of a mount that somebody with more rights has made.
func (m *Mount) open(without []Layer) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, err
	}
	attr := &unix.MountAttr{Attr_set: m.attributes(without), Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return -1, errors.Join(fmt.Errorf("attributes: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// attributes of the mount, in the form of mount_setattr(2) and fsmount(2).
func (m *Mount) attributes(without []Layer) uint64 {
	var a uint64
	if !slices.Contains(without, NoNewPrivileges) {
		a |= unix.MOUNT_ATTR_NOSUID
	}
	if !m.device() {
		a |= unix.MOUNT_ATTR_NODEV
	}
	if m.ReadOnly {
		a |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoExec {
		a |= unix.MOUNT_ATTR_NOEXEC
	}
	return a
}

// newFS makes a detached file system. Empty values are flags.
func newFS(kind string, attributes uint64, options ...[2]string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }()
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("option %s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attributes)) //nolint:gosec // a few low bits
}
