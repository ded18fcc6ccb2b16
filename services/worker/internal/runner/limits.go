//go:build linux

package runner

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// Names of limits, as the contract has them.
const (
	limitMemory  = "memory"
	limitPIDs    = "pids"
	limitStorage = "storage"
	limitCPU     = "cpu"
)

// counter is a file of a control group, version 1 or 2, and the field in it that
// counts how often the limit was hit.
type counter struct {
	limit, file, field string
}

func counters() []counter {
	return []counter{
		{limitMemory, "memory.events", "oom_kill"},
		{limitMemory, "memory.oom_control", "oom_kill"},
		{limitPIDs, "pids.events", "max"},
	}
}

// limits watches the limits of the world.
type limits struct {
	files   map[string]counter // by path
	folders []string
	cpu     func() bool

	mu    sync.Mutex
	begun map[string]uint64 // counts when the world began, by limit
	hit   map[string]bool
}

// newLimits looks for counters in a folder and in the folders directly in it.
func newLimits(folder string, folders []string, cpu func() bool) *limits {
	l := &limits{files: map[string]counter{}, folders: folders, cpu: cpu, hit: map[string]bool{}}
	for _, c := range counters() {
		for _, pattern := range []string{filepath.Join(folder, c.file), filepath.Join(folder, "*", c.file)} {
			found, err := filepath.Glob(pattern)
			if err != nil { // the folder's name is no pattern
				continue
			}
			for _, path := range found {
				if _, ok := count(path, c.field); ok {
					l.files[path] = c
				}
			}
		}
	}
	l.begun = l.counts()
	return l
}

// watched names the limits that have counters.
func (l *limits) watched() []string {
	var names []string
	for _, c := range l.files {
		names = append(names, c.limit)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// counts reads all counters.
func (l *limits) counts() map[string]uint64 {
	counts := map[string]uint64{}
	for path, c := range l.files {
		n, _ := count(path, c.field)
		counts[c.limit] += n
	}
	return counts
}

// note takes down what was hit by now, and what of it since the given counts.
func (l *limits) note(since map[string]uint64) (recent []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.counts() {
		l.hit[name] = l.hit[name] || n > l.begun[name]
		if n > since[name] {
			recent = append(recent, name)
		}
	}
	if full(l.folders) {
		l.hit[limitStorage] = true
		recent = append(recent, limitStorage)
	}
	l.hit[limitCPU] = l.hit[limitCPU] || l.cpu()
	return recent
}

// all names what was hit since the world began.
func (l *limits) all() []string {
	l.note(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	names := []string{}
	for name, hit := range l.hit {
		if hit {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ended says how a program ended that was started at the given counts.
func (l *limits) ended(status unix.WaitStatus, since map[string]uint64) runnerproto.Ended {
	recent := l.note(since)
	e := runnerproto.Ended{Code: status.ExitStatus()} // -1 for a signal
	if status.Signaled() {
		e.Signal = unix.SignalName(status.Signal())
	}
	switch {
	case status.Signaled() && status.Signal() == unix.SIGXCPU:
		e.Limit = limitCPU
	case e.Code == 0:
	default: // the most likely first
		for _, name := range []string{limitMemory, limitPIDs, limitStorage} {
			if slices.Contains(recent, name) {
				e.Limit = name
				break
			}
		}
	}
	return e
}

func count(path, field string) (uint64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), " "); name == field {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// fullBelow is the free space that counts as none, in bytes: what failed for want
// of room was larger than a page or two.
const fullBelow = 64 << 10

// full reports whether one of the folders has no room. A file system without a
// size, such as an unbounded tmpfs, always has.
func full(folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		var s unix.Statfs_t
		if err := unix.Statfs(folder, &s); err != nil || s.Blocks == 0 {
			return false
		}
		return s.Bavail*uint64(s.Bsize) < fullBelow || s.Files > 0 && s.Ffree == 0 //nolint:gosec // a block size is positive
	})
}
