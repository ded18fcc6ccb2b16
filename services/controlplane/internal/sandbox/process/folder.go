package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

const (
	// maxSocketPath is what the kernel takes as the path of a Unix socket, in bytes.
	maxSocketPath = 107
	// socketID is how much of an instance's uid is in the name of its socket: 80 bits
	// are enough to tell those of one folder apart.
	socketID     = 16
	socketSuffix = ".sock"
	// workspacePrefix begins the names of workspaces, which there are on the host only
	// where the machine allows no mount namespace.
	workspacePrefix = "workspace-"
)

// leftPattern are the names of what a folder can have from an earlier control
// plane. Nothing else in it is ever removed: an operator can name any folder.
var leftPattern = regexp.MustCompile(`^([a-z2-7]{16}\.sock|` + workspacePrefix + `[A-Z2-7]{26})$`)

// folder has the sockets at which the workers listen. Nobody but the control
// plane can enter it. Whatever is done in it stays in it, whatever a sandbox has
// put there.
type folder struct {
	dir  string
	root *os.Root
	lock *os.File
}

// openFolder locks the folder for as long as this process lives, and removes
// what an earlier control plane left: its sandboxes have ended with it.
func openFolder(dir string) (_ *folder, err error) {
	if n := len(dir) + 1 + len(socketName("")) + socketID; n > maxSocketPath {
		return nil, fmt.Errorf("%s is too long for the path of a socket in it: name one that is at least %d bytes shorter", dir, n-maxSocketPath)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder, which nobody else may enter
		return nil, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is used by another control plane (%w): give each a folder of its own", dir, err), lock.Close())
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	f := &folder{dir: dir, root: root, lock: lock}
	if err := f.sweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("left by an earlier control plane: %w", err), f.close())
	}
	return f, nil
}

func (f *folder) sweep() error {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		if leftPattern.MatchString(e.Name()) {
			errs = append(errs, f.removeAll(e.Name()))
		}
	}
	return errors.Join(errs...)
}

func socketName(uid string) string {
	return strings.ToLower(uid[:min(socketID, len(uid))]) + socketSuffix
}

func (f *folder) socket(uid string) string { return filepath.Join(f.dir, socketName(uid)) }

// listen opens the socket of an instance: a listener for its worker to inherit.
// The control plane alone can connect to it. Connections wait from now on for
// whoever accepts them.
func (f *folder) listen(ctx context.Context, uid string) (*os.File, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", f.socket(uid))
	if err != nil {
		return nil, err
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("not a Unix listener"), l.Close())
	}
	unix.SetUnlinkOnClose(false) // File duplicates it, and the worker goes on with that
	file, err := unix.File()
	if err = errors.Join(err, os.Chmod(f.socket(uid), 0o600), unix.Close()); err != nil && file != nil {
		err = errors.Join(err, file.Close())
	}
	return file, err
}

// workspace makes a folder on the host, for a machine without mount namespaces,
// that belongs to a user.
func (f *folder) workspace(uid string, owner int) (string, error) {
	name := workspacePrefix + uid
	if err := f.root.Mkdir(name, 0o700); err != nil {
		return "", err
	}
	if owner != os.Geteuid() {
		if err := f.root.Lchown(name, owner, -1); err != nil {
			return "", err
		}
	}
	return filepath.Join(f.dir, name), nil
}

// remove removes all that an instance has in the folder, if there is anything.
func (f *folder) remove(uid string) error {
	return errors.Join(f.removeAll(socketName(uid)), f.removeAll(workspacePrefix+uid))
}

func (f *folder) removeAll(name string) error {
	err := f.root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// Folders that are read-only, such as those of a module cache, keep even their
	// owner from removing what is in them.
	opened := fs.WalkDir(f.root.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return f.root.Chmod(path, 0o700)
		}
		return err
	})
	if opened != nil {
		return errors.Join(err, opened)
	}
	return f.root.RemoveAll(name)
}

func (f *folder) close() error { return errors.Join(f.root.Close(), f.lock.Close()) }
