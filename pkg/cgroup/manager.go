//go:build linux

package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// parentName is the group that has those of all managers in it.
	parentName = "cofferdam"
	// sweepTimeout bounds the removal of what a dead process left.
	sweepTimeout = 30 * time.Second
	dirMode      = 0o755
)

// Missing is a controller that cannot be used, and why.
type Missing struct {
	Controller Controller
	// Err is what the machine said.
	Err error
}

// String says what is missing and what to do about it.
func (m Missing) String() string {
	do := "start Cofferdam as root, or in a group that is delegated to its user"
	switch {
	case errors.Is(m.Err, errNowhere):
		do = "mount it, or start a kernel that has it"
	case errors.Is(m.Err, unix.EBUSY):
		do = "start Cofferdam in a group whose cgroup.subtree_control has it"
	case errors.Is(m.Err, unix.EROFS):
		do = "mount /sys/fs/cgroup writable"
	}
	return fmt.Sprintf("cgroup %s (%v: %s)", m.Controller, m.Err, do)
}

// Manager makes groups. It is safe for concurrent use.
type Manager struct {
	hierarchies []own
	missing     []Missing
}

// own is what a manager has of a hierarchy.
type own struct {
	hierarchy

	// dir is the manager's folder, and lock holds it.
	dir  string
	lock *os.File
}

// Probe says which controllers a [Manager] would miss here.
func Probe() ([]Missing, error) {
	m, err := Open(context.Background())
	if err != nil {
		return nil, err
	}
	return m.Missing(), m.Close()
}

// Open finds the machine's hierarchies, and ends and removes the groups of
// managers whose process has died. ctx bounds that. A controller that cannot be
// used is no error, but one that [Manager.Missing] names.
func Open(ctx context.Context) (*Manager, error) {
	hierarchies, err := discover()
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return open(ctx, hierarchies)
}

func open(ctx context.Context, hierarchies []hierarchy) (*Manager, error) {
	m := &Manager{}
	why := map[Controller]error{}
	for _, h := range hierarchies {
		// A hierarchy that is mounted twice is used once.
		h.controllers = slices.DeleteFunc(slices.Clone(h.controllers), m.has)
		if len(h.controllers) == 0 {
			continue
		}
		o, refused, err := h.take(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: %s: %w", h.dir, err), m.Close())
		}
		maps.Copy(why, refused)
		if len(o.controllers) > 0 {
			m.hierarchies = append(m.hierarchies, o)
		}
	}
	// What keeps a group from growing comes first, since it is needed to end one.
	slices.SortStableFunc(m.hierarchies, func(a, b own) int { return cmp.Compare(order(a), order(b)) })
	for _, c := range Controllers() {
		if m.has(c) {
			continue
		}
		m.missing = append(m.missing, Missing{c, orNowhere(why[c])})
	}
	return m, nil
}

func order(o own) int {
	if slices.Contains(o.controllers, PIDs) {
		return 0
	}
	return 1
}

func orNowhere(err error) error {
	if err == nil {
		return errNowhere
	}
	return err
}

func (m *Manager) has(c Controller) bool {
	return slices.ContainsFunc(m.hierarchies, func(o own) bool { return slices.Contains(o.controllers, c) })
}

// Missing names the controllers that cannot be used here.
func (m *Manager) Missing() []Missing { return slices.Clone(m.missing) }

// Close removes the manager's own folder. Groups that are left in it are an error,
// and are removed by the next manager.
func (m *Manager) Close() error {
	var errs []error
	for _, o := range m.hierarchies {
		err := unix.Rmdir(o.dir)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
			err = fmt.Errorf("cgroup: groups are left in %s: %w", o.dir, err)
		}
		errs = append(errs, err, o.lock.Close())
		_ = unix.Rmdir(filepath.Dir(o.dir)) // unless another manager uses it
	}
	m.hierarchies = nil
	return errors.Join(errs...)
}

// sweep ends and removes what managers left whose process has died. The kernel
// gave their locks back.
func (h hierarchy) sweep(ctx context.Context, parent string) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, sweepOne(ctx, filepath.Join(parent, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func sweepOne(ctx context.Context, dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // its process lives
	}
	if err != nil {
		return err
	}
	return removeTree(ctx, dir)
}
