//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	procsFile = "cgroup.procs"
	// firstPause, doubled up to maxPause, is how long the kernel is left alone
	// between two looks.
	firstPause = 500 * time.Microsecond
	maxPause   = 50 * time.Millisecond
)

// killAll ends all processes of a group, those of the groups in it not, and waits
// until there are none. A group that is gone has none.
func killAll(ctx context.Context, dir string) error {
	// Nothing new is born while the old is ended.
	if err := write(dir, "pids.max", "0"); err != nil && !gone(err) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("cgroup: %w", err)
	}
	return again(ctx, func() error {
		if err := write(dir, "cgroup.kill", "1"); err != nil && !gone(err) { // version 2, Linux 5.14
			return err
		}
		pids, err := members(dir)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		return errors.Join(errBusy, kill(dir, pids))
	})
}

var errBusy = errors.New("processes are left")

// removeTree ends all processes of a group and of those in it, and removes them
// all. One that cannot be ended does not keep the others.
func removeTree(ctx context.Context, dir string) error {
	errs := []error{killAll(ctx, dir)}
	entries, err := os.ReadDir(dir)
	if err != nil && !gone(err) {
		errs = append(errs, fmt.Errorf("cgroup: %w", err))
	}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeTree(ctx, filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return again(ctx, func() error {
		if err := unix.Rmdir(dir); err != nil && !gone(err) {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		return nil
	})
}

// again does something until it succeeds or ctx ends.
func again(ctx context.Context, do func() error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cgroup: %w (%w)", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// members are the ids of all processes of a group, as this process knows them.
func members(dir string) ([]int, error) {
	raw, err := os.ReadFile(filepath.Join(dir, procsFile))
	if err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, err
	}
	var pids []int
	for line := range strings.FieldsSeq(string(raw)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", procsFile, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// kill sends SIGKILL to processes of a group. An id that came to belong to a
// stranger in between is not in the group any more when it is looked at again with
// the stranger held by a descriptor.
func kill(dir string, pids []int) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		if pid == 0 {
			return errors.New("a process of another pid namespace is in the group")
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has ended
			held[pid] = fd
		}
	}
	now, err := members(dir)
	if err != nil {
		return err
	}
	for pid, fd := range held {
		if slices.Contains(now, pid) {
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// gone reports whether a group, or one of its files, is not there.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
