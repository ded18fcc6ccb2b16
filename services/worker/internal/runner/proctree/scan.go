//go:build linux

package proctree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is one process at the time of a scan.
type Process struct {
	PID    int
	Parent int
	Group  int
	// Still: each of its threads is stopped or dead.
	Still bool
	start uint64
}

// Is reports whether both are the same process, and not one after the other under
// the same number.
func (p Process) Is(other Process) bool { return p.PID == other.PID && p.start == other.start }

// Scan lists the processes of the world in the order of their numbers, zombies
// among them. whole is false where the world moved on meanwhile, so that some may
// be missing: scan again.
func (t *Tree) Scan() (found []Process, whole bool, err error) {
	all, err := list()
	if err != nil {
		return nil, false, err
	}
	whole = true
	mine := map[int]bool{}
	var within func(pid int) bool
	within = func(pid int) bool {
		in, known := mine[pid]
		if known {
			return in
		}
		mine[pid] = false // ends at a circle, which numbers that are used again can make
		s, there := all[pid]
		switch {
		case s.parent == t.self:
			in = true
		case !there && pid != 0: // its parent ended during the scan: it has another by now
			whole = false
		case there:
			in = within(s.parent)
		}
		mine[pid] = in
		return in
	}
	for _, pid := range sorted(all) {
		if pid == t.self || !t.own && !within(pid) {
			continue
		}
		p, err := process(pid, all[pid])
		switch {
		case gone(err): // and so is all that it could do
		case err != nil:
			return nil, false, err
		default:
			found = append(found, p)
		}
	}
	return found, whole, nil
}

// list reads /proc.
func list() (map[int]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("proctree: %w", err)
	}
	all := make(map[int]stat, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := readStat(filepath.Join("/proc", e.Name(), "stat"))
		switch {
		case gone(err):
		case err != nil:
			return nil, err
		default:
			all[pid] = s
		}
	}
	return all, nil
}

// process looks at the threads: the first may have ended, or be stopped, before
// the others.
func process(pid int, s stat) (Process, error) {
	p := Process{PID: pid, Parent: s.parent, Group: s.group, Still: true, start: s.start}
	folder := filepath.Join("/proc", strconv.Itoa(pid), "task")
	tasks, err := os.ReadDir(folder)
	if err != nil {
		return Process{}, err
	}
	for _, task := range tasks {
		ts, err := readStat(filepath.Join(folder, task.Name(), "stat"))
		switch {
		case gone(err): // one that has ended does nothing
		case err != nil:
			return Process{}, err
		default:
			p.Still = p.Still && still(ts.state)
		}
	}
	return p, nil
}

func readStat(path string) (stat, error) {
	line, err := os.ReadFile(path)
	if err != nil {
		return stat{}, err
	}
	return parseStat(line)
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
