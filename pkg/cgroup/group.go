//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Group bounds processes. It is safe for concurrent use.
type Group struct{ places []place }

// place is a group in one hierarchy.
type place struct {
	dir         string
	unified     bool
	controllers []Controller
}

// Create makes a group with limits. Those of controllers that are missing do not
// hold. The name is one element of a path that the manager has no group of; the
// group must be removed.
func (m *Manager) Create(name string, l Limits) (*Group, error) {
	if err := check(name, l); err != nil {
		return nil, err
	}
	places := make([]place, len(m.hierarchies))
	for i, o := range m.hierarchies {
		places[i] = place{filepath.Join(o.dir, name), o.unified, o.controllers}
	}
	return create(places, l)
}

// Child makes a group in the group, with limits of its own below those of the
// whole. A group that has any can have no process itself.
func (g *Group) Child(name string, l Limits) (*Group, error) {
	if err := check(name, l); err != nil {
		return nil, err
	}
	places := make([]place, len(g.places))
	for i, p := range g.places {
		if p.unified {
			for _, c := range p.controllers {
				if err := write(p.dir, "cgroup.subtree_control", "+"+string(c)); err != nil {
					return nil, fmt.Errorf("cgroup: %w", err)
				}
			}
		}
		places[i] = place{filepath.Join(p.dir, name), p.unified, p.controllers}
	}
	return create(places, l)
}

func check(name string, l Limits) error {
	if !filepath.IsLocal(name) || filepath.Base(name) != name || name == "." {
		return fmt.Errorf("cgroup: %q cannot be the name of a group", name)
	}
	return l.validate()
}

// create makes a group in all its places, or none.
func create(places []place, l Limits) (*Group, error) {
	g := &Group{}
	for _, p := range places {
		err := os.Mkdir(p.dir, dirMode)
		if err == nil {
			g.places = append(g.places, p)
		}
		for _, c := range p.controllers {
			if err == nil {
				err = l.set(p.dir, p.unified, c)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: %w", err), g.rmdir())
		}
	}
	return g, nil
}

// Add puts a process with all its threads into the group. What it starts from now
// on is born there; what it has started is not, and so Add comes before a process
// is let do anything.
func (g *Group) Add(pid int) error {
	for _, p := range g.places {
		if err := write(p.dir, procsFile, strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// Dirs are the group's folders, one for each hierarchy.
func (g *Group) Dirs() []string {
	dirs := make([]string, len(g.places))
	for i, p := range g.places {
		dirs[i] = p.dir
	}
	return dirs
}

// CounterFiles are the files, by their paths, from which a process inside can read
// how often memory and processes ran out: the kernel's own, as they are.
func (g *Group) CounterFiles() []string {
	var files []string
	for _, p := range g.places {
		for _, c := range p.controllers {
			if c == Memory || c == PIDs {
				files = append(files, filepath.Join(p.dir, sources(c, p.unified)[0].file))
			}
		}
	}
	return files
}

// Kill ends all processes of the group and waits, within ctx, until there are
// none.
func (g *Group) Kill(ctx context.Context) error {
	var errs []error
	for _, p := range g.places {
		errs = append(errs, killAll(ctx, p.dir))
	}
	return errors.Join(errs...)
}

// Remove ends all processes of the group and removes it. The kernel lets go of a
// group a while after its last process: ctx bounds that. It can be repeated.
func (g *Group) Remove(ctx context.Context) error {
	var errs []error
	for _, p := range g.places {
		errs = append(errs, removeTree(ctx, p.dir))
	}
	return errors.Join(errs...)
}

// rmdir removes a group that never had a process.
func (g *Group) rmdir() error {
	var errs []error
	for _, p := range g.places {
		errs = append(errs, unix.Rmdir(p.dir))
	}
	return errors.Join(errs...)
}
