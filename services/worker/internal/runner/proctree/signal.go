//go:build linux

package proctree

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Signal sends sig to every process of the world. None is no error.
func (t *Tree) Signal(sig unix.Signal) error {
	if t.own {
		return ignoreGone(unix.Kill(-1, sig)) // all but process 1, and no fork in between
	}
	return t.each(sig, func(Process) bool { return true })
}

// SignalGroup sends sig to the processes of one group.
func (t *Tree) SignalGroup(group int, sig unix.Signal) error {
	if t.own {
		return ignoreGone(unix.Kill(-group, sig))
	}
	return t.each(sig, func(p Process) bool { return p.Group == group })
}

// Empty reports that no process is left, not even a zombie.
func (t *Tree) Empty() (bool, error) {
	if t.own {
		return nobody(-1)
	}
	for range 2 { // numbers come round: one scan can miss a child that is new under a low one
		found, whole, err := t.Scan()
		if err != nil || !whole || len(found) > 0 {
			return false, err
		}
	}
	return true, nil
}

// GroupEmpty is the same for one group.
func (t *Tree) GroupEmpty(group int) (bool, error) {
	if t.own {
		return nobody(-group)
	}
	found, whole, err := t.Scan()
	return whole && !slices.ContainsFunc(found, func(p Process) bool { return p.Group == group }), err
}

// nobody asks the kernel, whose word does not depend on how /proc is mounted.
func nobody(target int) (bool, error) {
	err := unix.Kill(target, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("proctree: %w", err)
	}
	return err != nil, nil
}

func (t *Tree) each(sig unix.Signal, want func(Process) bool) error {
	found, _, err := t.Scan()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range found {
		if want(p) {
			errs = append(errs, p.Signal(sig))
		}
	}
	return errors.Join(errs...)
}

// Signal sends sig to this process or to none: its number may be another's by now.
// One that is gone is no error.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer func() { _ = unix.Close(fd) }()
	s, err := readStat(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
	if err != nil || s.start != p.start {
		return ignoreGone(err)
	}
	return ignoreGone(unix.PidfdSendSignal(fd, sig, nil, 0))
}

func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

func sorted(all map[int]stat) []int { return slices.Sorted(maps.Keys(all)) }
