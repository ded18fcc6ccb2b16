//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the root itself, which holds nothing but mount points and small files.
const (
	rootSize   = 1 << 20
	rootInodes = 1024
)

// root is the new root of a world while it is made.
type root struct {
	fd      int
	ids     ids
	without []Layer
}

// makeRoot builds the root from the mounts and their sources, and moves into it. Nothing of the old one is left.
func makeRoot(s *Spec, trees []int, id ids, without []Layer) error {
	// The kernel gives a new proc only to who sees a whole one already, which ends with the old root.
	proc, err := openProc(without)
	if err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	defer func() { _ = unix.Close(proc) }()
	r, err := newRoot(id, without)
	if err != nil {
		return fmt.Errorf("new root: %w", err)
	}
	defer func() { _ = unix.Close(r.fd) }()
	for _, f := range s.Files {
		if err := r.write(f); err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
	}
	if err := r.mountAt(proc, "/proc"); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for i, m := range s.mounts() {
		if err := r.mount(m, trees[i]); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	if err := r.finishDev(s.Terminals); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	return r.enter()
}

// openProc gives the processes of our own pid namespace, to each user its own; the group of id 0, which the runner has,
// sees all of them.
func openProc(without []Layer) (int, error) {
	const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if slices.Contains(without, PIDNamespace) {
		m := Mount{Target: "/proc", Source: "/proc", NoExec: true} // only who owns a pid namespace may mount its proc
		return m.open(without)
	}
	return newFS("proc", attributes, [2]string{"hidepid", "invisible"}, [2]string{"gid", "0"})
}

func newRoot(id ids, without []Layer) (*root, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make / private: %w", err)
	}
	m := Mount{Tmpfs: &Tmpfs{Size: rootSize, Inodes: rootInodes, Mode: 0o755}}
	fd, err := m.newTmpfs(id, without)
	if err != nil {
		return nil, err
	}
	// On top of the old root, so that no folder of the host is needed; the descriptor is the way to it.
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &root{fd: fd, ids: id, without: without}, nil
}

func (m *Mount) newTmpfs(id ids, without []Layer) (int, error) {
	options := [][2]string{
		{"size", strconv.FormatInt(m.Tmpfs.Size, 10)},
		{"nr_inodes", strconv.FormatInt(m.Tmpfs.Inodes, 10)},
		{"mode", strconv.FormatUint(uint64(m.Tmpfs.Mode), 8)},
	}
	if uid, gid := id.of(m.Tmpfs.UID), id.of(m.Tmpfs.GID); uid >= 0 {
		options = append(options, [2]string{"uid", strconv.Itoa(uid)}, [2]string{"gid", strconv.Itoa(gid)})
	}
	return newFS("tmpfs", m.attributes(without), options...)
}

// mount puts a mount where it belongs.
func (r *root) mount(m Mount, tree int) error {
	if m.Tmpfs != nil {
		fd, err := m.newTmpfs(r.ids, r.without)
		if err != nil {
			return err
		}
		tree = fd
	}
	defer func() { _ = unix.Close(tree) }()
	return r.mountAt(tree, m.Target)
}

func (r *root) mountAt(tree int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	at, err := r.walk(target, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// walk gives the folder or file at a path, made where it is not there. It follows no link.
func (r *root) walk(target string, folder bool) (int, error) {
	at, err := unix.Openat(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	names := strings.FieldsFunc(target, func(r rune) bool { return r == '/' })
	for i, name := range names {
		next, err := openOrMake(at, name, folder || i < len(names)-1)
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

func openOrMake(at int, name string, folder bool) (int, error) {
	flags := unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if folder {
		flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Openat(at, name, flags, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, noLink(fd, err)
	}
	if folder {
		err = unix.Mkdirat(at, name, 0o755)
	} else {
		err = unix.Mknodat(at, name, unix.S_IFREG|0o444, 0)
	}
	if err != nil {
		return -1, err
	}
	return unix.Openat(at, name, flags, 0)
}

// noLink refuses what O_PATH opens in place of a link's target.
func noLink(fd int, err error) error {
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		_ = unix.Close(fd)
		return unix.ELOOP
	}
	return nil
}

// write makes a file.
func (r *root) write(f File) error {
	dir, err := r.walk(path.Dir(f.Path), true)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat(dir, path.Base(f.Path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, f.Mode)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), f.Path)
	_, err = file.WriteString(f.Content)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// finishDev makes the usual links, and terminals where they are wanted.
func (r *root) finishDev(terminals bool) error {
	links := [][2]string{
		{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	}
	if terminals {
		links = append(links, [2]string{"pts/ptmx", "ptmx"})
		pts, err := newFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
			[2]string{"ptmxmode", "0666"}, [2]string{"mode", "0600"})
		if err != nil {
			return fmt.Errorf("pts: %w", err)
		}
		defer func() { _ = unix.Close(pts) }()
		if err := r.mountAt(pts, "/dev/pts"); err != nil {
			return fmt.Errorf("pts: %w", err)
		}
	}
	dev, err := r.walk("/dev", true)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dev) }()
	for _, l := range links {
		if err := unix.Symlinkat(l[0], dev, l[1]); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the new root the root, and lets go of the old one.
func (r *root) enter() error {
	if err := unix.Fchdir(r.fd); err != nil {
		return err
	}
	// Both are the same folder: the old root comes to lie on top of the new one, and goes from there.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}
