// Package procs finds processes in /proc and tells what anybody on the machine
// could see of them: that is how tests know that nothing was left behind, and
// that no secret stands where it could be read.
//
// Linux only.
package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const proc = "/proc"

// Process is one process at the moment it was looked at.
type Process struct {
	PID, Parent int
	// Name is the kernel's, at most 15 characters.
	Name string
	// Args is its command line.
	Args []string
	// Folder is its working directory; empty where it cannot be read.
	Folder string
	// state is the kernel's letter; started, in clock ticks since boot, tells it
	// from a later process with the same id.
	state   string
	started uint64
}

// String names it for people.
func (p Process) String() string {
	return fmt.Sprintf("%d %s %q", p.PID, p.Name, p.Args)
}

// Alive reports whether this very process still runs. One that has ended and
// waits for its parent to notice does not.
func (p Process) Alive() bool {
	now, err := Read(p.PID)
	return err == nil && now.started == p.started && now.state != "Z" && now.state != "X"
}

// Program is the base name of what it was started as.
func (p Process) Program() string {
	if len(p.Args) == 0 {
		return ""
	}
	return filepath.Base(p.Args[0])
}

// Read looks at one process. The error is [fs.ErrNotExist] where there is none.
func Read(pid int) (Process, error) {
	raw, err := readFile(pid, "stat")
	if err != nil {
		return Process{}, err
	}
	// The name, in parentheses, may hold anything, blanks and parentheses included.
	open, shut := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if open < 0 || shut < open {
		return Process{}, fmt.Errorf("/proc/%d/stat: no name in it", pid)
	}
	fields := strings.Fields(string(raw[shut+1:]))
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	p := Process{PID: pid, Name: string(raw[open+1 : shut]), state: fields[0]}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, err
	}
	p.Parent = parent
	if p.started, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return Process{}, err
	}
	args, err := readFile(pid, "cmdline")
	if err != nil {
		return Process{}, err
	}
	if len(args) > 0 {
		p.Args = strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")
	}
	p.Folder, _ = os.Readlink(path(pid, "cwd")) // of a kernel thread or another user's there is none
	return p, nil
}

// Environment is what a process was started with, as KEY=VALUE.
func Environment(pid int) ([]string, error) {
	raw, err := readFile(pid, "environ")
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"), nil
}

// Files are the targets of the open descriptors of a process, by number.
func Files(pid int) (map[int]string, error) {
	entries, err := os.ReadDir(path(pid, "fd"))
	if err != nil {
		return nil, gone(err)
	}
	files := map[int]string{}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		if target, err := os.Readlink(path(pid, "fd", e.Name())); err == nil { // else closed since
			files[fd] = target
		}
	}
	return files, nil
}

// List looks at all processes.
func List() ([]Process, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := Read(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Of gives what belongs to a program that was started as root and keeps its data
// in folder: root and all that descends from it, and whatever names the folder
// in its arguments or works in it.
func Of(root int, folder string) ([]Process, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	family := map[int]bool{root: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if family[p.Parent] && !family[p.PID] {
				family[p.PID], grown = true, true
			}
		}
	}
	var mine []Process
	for _, p := range all {
		if p.PID != os.Getpid() && (family[p.PID] || p.mentions(folder)) {
			mine = append(mine, p)
		}
	}
	return mine, nil
}

func (p Process) mentions(folder string) bool {
	within := func(s string) bool {
		return s == folder || strings.Contains(s, folder+"/") || strings.HasSuffix(s, folder)
	}
	return within(p.Folder) || slices.ContainsFunc(p.Args, within)
}

func path(pid int, elem ...string) string {
	return filepath.Join(append([]string{proc, strconv.Itoa(pid)}, elem...)...)
}

func readFile(pid int, name string) ([]byte, error) {
	raw, err := os.ReadFile(path(pid, name))
	return raw, gone(err)
}

// gone makes one error of the two that a process gives which ends while it is
// looked at.
func gone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return fs.ErrNotExist
	}
	return err
}

// Signals is a set of signals.
type Signals uint64

// Has reports whether a signal is in the set.
func (s Signals) Has(sig syscall.Signal) bool { return sig > 0 && s>>(sig-1)&1 == 1 }

// Ignored are the signals that a process ignores. The error is [fs.ErrNotExist]
// where there is none.
func Ignored(pid int) (Signals, error) {
	raw, err := readFile(pid, "status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return Signals(n), err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status: no SigIgn in it", pid)
}
