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
	// sweepTimeout bounds the removal of what dead processes left, and leftTimeout that
	// of what one of them did: a process that the kernel holds is not waited for.
	sweepTimeout = 30 * time.Second
	leftTimeout  = 5 * time.Second
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
	left        []Leftover
}

// Leftover is what a process that died has left and that could not be removed, such
// as a group with a process that the kernel does not let go of. It counts for no
// limit of a [Manager]. The next one that is opened tries again.
type Leftover struct {
	// Dir is its folder.
	Dir string
	// Err is why it is still there.
	Err error
}

// String says what is left and what to do about it.
func (l Leftover) String() string {
	return fmt.Sprintf("cgroup %s is left by a process that died (%v): it is tried again at the next start; end what cgroup.procs in it names", l.Dir, l.Err)
}

// own is what a manager has of a hierarchy.
type own struct {
	hierarchy

	// dir is the manager's folder, and lock holds it.
	dir  string
	lock *os.File
}

// Probe says which controllers a [Manager] would miss here. ctx is that of [Open].
func Probe(ctx context.Context) ([]Missing, error) {
	m, err := Open(ctx)
	if err != nil {
		return nil, err
	}
	return m.Missing(), m.Close()
}

// Open finds the machine's hierarchies, and ends and removes the groups of
// managers whose process has died. ctx bounds that. A controller that cannot be
// used is no error, but one that [Manager.Missing] names; and neither is what
// cannot be removed, which [Manager.Leftovers] names.
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
		o, left, refused, err := h.take(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: %s: %w", h.dir, err), m.Close())
		}
		m.left = append(m.left, left...)
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

// Leftovers names what Open could not remove. Whoever opened the manager logs it.
func (m *Manager) Leftovers() []Leftover { return slices.Clone(m.left) }

// Close removes the manager's own folder. Groups that are left in it are an error,
// and are removed by the next manager.
func (m *Manager) Close() error {
	var errs []error
	for _, o := range m.hierarchies {
		errs = append(errs, o.giveBack())
	}
	m.hierarchies = nil
	return errors.Join(errs...)
}

// giveBack removes the manager's folder, and with it the last of them the parent.
func (o *own) giveBack() error {
	err := unix.Rmdir(o.dir)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		err = fmt.Errorf("cgroup: groups are left in %s: %w", o.dir, err)
	}
	err = errors.Join(err, o.lock.Close())
	_ = unix.Rmdir(filepath.Dir(o.dir)) // unless another manager uses it
	return err
}

// sweep ends and removes what managers left whose process has died. The kernel
// gave their locks back.
func sweep(ctx context.Context, parent string) ([]Leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	var left []Leftover
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if err := sweepOne(ctx, dir); err != nil {
			left = append(left, Leftover{dir, err})
		}
	}
	return left, nil
}

func sweepOne(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
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
