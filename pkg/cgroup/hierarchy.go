//go:build linux

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Controller is a resource that can be bounded.
type Controller string

// The controllers that a [Group] uses.
const (
	Memory Controller = "memory"
	PIDs   Controller = "pids"
	CPU    Controller = "cpu"
)

// Controllers are all that a [Group] uses.
func Controllers() []Controller { return []Controller{Memory, PIDs, CPU} }

// hierarchy is a tree of groups.
type hierarchy struct {
	// dir is the folder of the group below which ours stand.
	dir string
	// unified is a hierarchy of version 2.
	unified     bool
	controllers []Controller
}

var errNowhere = errors.New("no hierarchy of this machine has it")

// discover finds the hierarchies, and for each the group of this process.
func discover() ([]hierarchy, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer mounts.Close()
	groups, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	defer groups.Close()
	return parse(mounts, groups)
}

func parse(mounts, groups io.Reader) ([]hierarchy, error) {
	own, err := ownGroups(groups)
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		m, ok := parseMount(lines.Text())
		if !ok {
			continue
		}
		h := hierarchy{unified: m.unified}
		var group string
		switch {
		case m.unified:
			group = own[""]
			h.controllers = Controllers() // which of them there are is said by the group itself
		default:
			for _, c := range Controllers() {
				if path, ok := own[c]; ok && slices.Contains(m.options, string(c)) {
					h.controllers, group = append(h.controllers, c), path
				}
			}
		}
		if len(h.controllers) == 0 {
			continue
		}
		h.dir = m.folder(group)
		found = append(found, h)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cgroup: mountinfo: %w", err)
	}
	return found, nil
}

// ownGroups reads /proc/self/cgroup: the group of this process in the hierarchy
// of each controller, and under "" in that of version 2.
func ownGroups(r io.Reader) (map[Controller]string, error) {
	own := map[Controller]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// 4:memory:/some/group, 1:cpu,cpuacct:/ or 0::/some/group; a group's name can
		// hold colons.
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("cgroup: /proc/self/cgroup: %q", lines.Text())
		}
		for c := range strings.SplitSeq(fields[1], ",") {
			own[Controller(c)] = fields[2]
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cgroup: /proc/self/cgroup: %w", err)
	}
	return own, nil
}

// mount is a hierarchy where it can be reached.
type mount struct {
	// root is the group that stands at point.
	root, point string
	unified     bool
	options     []string
}

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)).
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	place, source := strings.Fields(before), strings.Fields(after)
	if !ok || len(place) < 6 || len(source) < 3 {
		return mount{}, false
	}
	if source[0] != "cgroup" && source[0] != "cgroup2" {
		return mount{}, false
	}
	return mount{
		root: unescape(place[3]), point: unescape(place[4]),
		unified: source[0] == "cgroup2", options: strings.Split(source[2], ","),
	}, true
}

// folder is where a group stands. One that cannot be seen through this mount is
// taken for the one at its top, which is what a container is shown of its own.
func (m mount) folder(group string) string {
	rel, err := filepath.Rel(m.root, group)
	outside := strings.Contains(m.root+group, "/..") // of the cgroup namespace
	if err != nil || outside || !filepath.IsLocal(rel) {
		return m.point
	}
	return filepath.Join(m.point, rel)
}

// unescape undoes what the kernel does to blanks and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
