//go:build linux

package cgroup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// parentName is the group that has those of all managers in it.
	parentName = "cofferdam"
	// sweepTimeout bounds the removal of what a dead process left.
	sweepTimeout = 10 * time.Second
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
		for c, err := range refused {
			why[c] = err
		}
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

// take makes the manager's folder in a hierarchy and sees which controllers can be
// used in it. What this machine does not allow is in refused.
func (h hierarchy) take(ctx context.Context) (_ own, refused map[Controller]error, err error) {
	refused = map[Controller]error{}
	none := func(err error) (own, map[Controller]error, error) {
		for _, c := range h.controllers {
			refused[c] = err
		}
		return own{}, refused, nil
	}
	if h.unified {
		h.controllers = h.enable(h.dir, refused)
		if len(h.controllers) == 0 {
			return own{}, refused, nil
		}
	}
	parent := filepath.Join(h.dir, parentName)
	lock, err := lockParent(parent)
	if err != nil {
		return none(err)
	}
	// While it is held nobody makes a folder, and takes one for abandoned that its
	// manager is about to lock.
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := h.sweep(ctx, parent); err != nil {
		return own{}, nil, fmt.Errorf("left by a process that died: %w", err)
	}
	o := own{hierarchy: h, dir: filepath.Join(parent, strings.ToLower(rand.Text()))}
	if err := os.Mkdir(o.dir, dirMode); err != nil {
		return none(err)
	}
	if h.unified {
		h.enable(parent, refused)
		o.controllers = h.enable(o.dir, refused)
	}
	if o.lock, err = os.Open(o.dir); err == nil {
		err = unix.Flock(int(o.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return own{}, nil, err
	}
	return o, refused, o.try(refused)
}

// lockParent makes the folder of all managers and locks it. One that its last
// manager has just removed is made again.
func lockParent(dir string) (*os.File, error) {
	for {
		if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		held, herr := f.Stat()
		now, nerr := os.Stat(dir)
		if herr == nil && nerr == nil && os.SameFile(held, now) {
			return f, nil
		}
		_ = f.Close() // of a folder that is gone
	}
}

// enable gives the controllers of version 2 to the groups below a group, and gives
// those that they have.
func (h hierarchy) enable(dir string, refused map[Controller]error) []Controller {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		for _, c := range h.controllers {
			refused[c] = err
		}
		return nil
	}
	var out []Controller
	for _, c := range h.controllers {
		if !slices.Contains(strings.Fields(string(have)), string(c)) {
			continue // another hierarchy may have it
		}
		if err := write(dir, "cgroup.subtree_control", "+"+string(c)); err != nil {
			refused[c] = err
			continue
		}
		out = append(out, c)
	}
	return out
}

// try makes a group with limits and removes it: what cannot be set is not there.
func (o *own) try(refused map[Controller]error) error {
	dir := filepath.Join(o.dir, "try")
	if err := os.Mkdir(dir, dirMode); err != nil {
		return err
	}
	some := Limits{Memory: 64 << 20, PIDs: 64, CPUs: 1}
	o.controllers = slices.DeleteFunc(slices.Clone(o.controllers), func(c Controller) bool {
		err := some.set(dir, o.unified, c)
		for _, s := range sources(c, o.unified) {
			_, rerr := s.read(dir)
			err = errors.Join(err, rerr)
		}
		if err != nil {
			refused[c] = err
		}
		return err != nil
	})
	return unix.Rmdir(dir)
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
