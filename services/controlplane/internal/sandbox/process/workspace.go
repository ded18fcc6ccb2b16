package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// workspacePrefix begins the names of workspaces; nothing else in the folder is
// ever removed.
const workspacePrefix = "workspace-"

var workspacePattern = regexp.MustCompile(`^` + workspacePrefix + `[A-Z2-7]{26}$`)

// workspaces is the folder of all workspaces. Whatever is done in it stays in
// it, whatever a sandbox has put there.
type workspaces struct {
	dir  string
	root *os.Root
	lock *os.File
}

// openWorkspaces locks the folder for as long as this process lives, and removes
// what an earlier control plane left: its sandboxes have ended with it.
func openWorkspaces(dir string) (_ *workspaces, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
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
	w := &workspaces{dir: dir, root: root, lock: lock}
	if err := w.sweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("left by an earlier control plane: %w", err), w.close())
	}
	return w, nil
}

func (w *workspaces) sweep() error {
	entries, err := fs.ReadDir(w.root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		if workspacePattern.MatchString(e.Name()) {
			errs = append(errs, w.removeAll(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// make makes the workspace of an instance and gives its absolute path.
func (w *workspaces) make(uid string) (string, error) {
	name := workspacePrefix + uid
	return filepath.Join(w.dir, name), w.root.Mkdir(name, 0o700)
}

// remove removes the workspace of an instance, if there is one.
func (w *workspaces) remove(uid string) error { return w.removeAll(workspacePrefix + uid) }

func (w *workspaces) removeAll(name string) error {
	err := w.root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// Folders that are read-only, such as those of a module cache, keep even their
	// owner from removing what is in them.
	opened := fs.WalkDir(w.root.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return w.root.Chmod(path, 0o700)
		}
		return err
	})
	if opened != nil {
		return errors.Join(err, opened)
	}
	return w.root.RemoveAll(name)
}

func (w *workspaces) close() error { return errors.Join(w.root.Close(), w.lock.Close()) }
