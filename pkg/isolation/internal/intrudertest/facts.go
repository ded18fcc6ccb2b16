//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Facts are what a program inside sees of itself and around it.
type Facts struct {
	PID, UID, GID int
	Groups        []int
	// Status has the lines of /proc/self/status about privileges.
	Status map[string]string
	Env    []string
	// FDs are the descriptors and what they lead to.
	FDs map[string]string
	// Names are those in /, /dev and /proc, as far as they are numbers.
	Root, Dev, Processes []string
	Cgroup               string
	Core, Queues         uint64
	Umask                int
	Dir                  string
	Hostname             string
	Mounts               []string
}

func facts([]string) (string, error) {
	f := Facts{
		PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), Env: os.Environ(),
		Status: map[string]string{}, FDs: map[string]string{},
		Root: names("/"), Dev: names("/dev"),
	}
	f.Groups, _ = os.Getgroups()
	f.Dir, _ = os.Getwd()
	f.Hostname, _ = os.Hostname()
	f.Umask = syscall.Umask(0)
	for _, name := range names("/proc") {
		if _, err := strconv.Atoi(name); err == nil {
			f.Processes = append(f.Processes, name)
		}
	}
	for _, fd := range names("/proc/self/fd") {
		fd = filepath.Base(fd)
		if to, err := os.Readlink("/proc/self/fd/" + fd); err == nil && !strings.HasPrefix(to, "anon_inode:[event") {
			f.FDs[fd] = to
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" || name == "Seccomp" || name == "Groups" {
			f.Status[name] = strings.TrimSpace(value)
		}
	}
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	f.Cgroup = string(cgroup)
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(unix.RLIMIT_CORE, &limit)
	f.Core = limit.Max
	_ = syscall.Getrlimit(unix.RLIMIT_MSGQUEUE, &limit)
	f.Queues = limit.Max
	if mounts, err := os.Open("/proc/self/mounts"); err == nil {
		defer mounts.Close()
		for s := bufio.NewScanner(mounts); s.Scan(); {
			f.Mounts = append(f.Mounts, s.Text())
		}
	}
	b, err := json.Marshal(f)
	return string(b), err
}

func names(folder string) []string {
	all, _ := filepath.Glob(filepath.Join(folder, "*"))
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "/proc/")
	}
	slices.Sort(all)
	return all
}
