//go:build linux

package cgroup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// take makes the manager's folder in a hierarchy and sees which controllers can be
// used in it. What this machine does not allow is in refused, and what could not be
// removed there in left.
func (h hierarchy) take(ctx context.Context) (_ own, left []Leftover, refused map[Controller]error, err error) {
	refused = map[Controller]error{}
	none := func(err error) (own, []Leftover, map[Controller]error, error) {
		for _, c := range h.controllers {
			refused[c] = err
		}
		return own{}, left, refused, nil
	}
	if h.unified {
		h.controllers = h.enable(h.dir, refused)
		if len(h.controllers) == 0 {
			return own{}, nil, refused, nil
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
	if left, err = sweep(ctx, parent); err == nil {
		err = ctx.Err() // who does not wait any longer did not see the end of it
	}
	if err != nil {
		return own{}, nil, nil, fmt.Errorf("left by processes that died: %w", err)
	}
	o := own{hierarchy: h, dir: filepath.Join(parent, strings.ToLower(rand.Text()))}
	if err := os.Mkdir(o.dir, dirMode); err != nil {
		return none(err)
	}
	if h.unified {
		h.enable(parent, refused)
		o.controllers = h.enable(o.dir, refused)
	}
	if err := o.hold(refused); err != nil {
		return own{}, nil, nil, err
	}
	if len(o.controllers) == 0 { // all were refused
		return own{}, left, refused, o.giveBack()
	}
	return o, left, refused, nil
}

// hold locks the manager's folder and sees what can be used in it. Where it fails
// nothing of the folder is left.
func (o *own) hold(refused map[Controller]error) (err error) {
	if o.lock, err = os.Open(o.dir); err != nil {
		return errors.Join(err, unix.Rmdir(o.dir))
	}
	err = unix.Flock(int(o.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = o.try(refused)
	}
	if err != nil {
		return errors.Join(err, o.giveBack())
	}
	return nil
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
		return fmt.Errorf("try: %w", err)
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
