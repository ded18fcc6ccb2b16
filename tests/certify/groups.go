package certify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// groups are the control groups of a process as folders, by controller.
type groups map[string]string

// controllers that bound a sandbox, and the file of each with its bound, in version 1
// and version 2.
func controllers() map[string][]string {
	return map[string][]string{
		"memory": {"memory.limit_in_bytes", "memory.max"},
		"pids":   {"pids.max"},
		"cpu":    {"cpu.cfs_quota_us", "cpu.max"},
	}
}

// groupsOf finds the groups of a process. Those of a container are shown to it as if they
// were at the top.
func groupsOf(pid int) (groups, error) {
	its, err := groupPaths(strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	own, err := groupPaths("self")
	if err != nil {
		return nil, err
	}
	found := groups{}
	for controller, files := range controllers() {
		for _, at := range []struct{ folder, hierarchy string }{{controller, controller}, {"", ""}, {"unified", ""}} {
			group, ok := its[at.hierarchy]
			if !ok {
				continue
			}
			below := strings.TrimPrefix(group, strings.TrimSuffix(own[at.hierarchy], "/"))
			for _, rest := range []string{group, below} {
				dir := filepath.Join("/sys/fs/cgroup", at.folder, rest)
				if found[controller] == "" && slices.ContainsFunc(files, func(f string) bool { _, err := os.Stat(filepath.Join(dir, f)); return err == nil }) {
					found[controller] = dir
				}
			}
		}
		if found[controller] == "" {
			return nil, fmt.Errorf("the group for %s of process %d is not to be found", controller, pid)
		}
	}
	return found, nil
}

// groupPaths reads /proc/PID/cgroup: the group in the hierarchy of each controller, and
// under "" in that of version 2.
func groupPaths(pid string) (map[string]string, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return nil, err
	}
	return parseGroups(string(raw))
}

func parseGroups(text string) (map[string]string, error) {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%q is not a line of a list of groups", line)
		}
		for c := range strings.SplitSeq(fields[1], ",") {
			found[c] = fields[2]
		}
	}
	return found, nil
}

// bound is the lowest one of a group and those above it; 0 is none.
func (g groups) bound(controller string) (lowest int64) {
	for dir := g[controller]; strings.HasPrefix(dir, "/sys/fs/cgroup/"); dir = filepath.Dir(dir) {
		for _, file := range controllers()[controller] {
			raw, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			fields := strings.Fields(string(raw))
			if len(fields) == 0 {
				continue
			}
			const none = 1 << 60 // version 1 has a number near the largest for no bound
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil && n > 0 && n < none && (lowest == 0 || n < lowest) {
				lowest = n
			}
		}
	}
	return lowest
}

// throttled is how often a group had to wait for its next share of processor time.
func (g groups) throttled() (n int64) {
	for dir := g["cpu"]; strings.HasPrefix(dir, "/sys/fs/cgroup/"); dir = filepath.Dir(dir) {
		raw, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "nr_throttled" {
				v, err := strconv.ParseInt(f[1], 10, 64)
				if err == nil {
					n += v
				}
			}
		}
	}
	return n
}

// hog is a shell that has joined the groups of a sandbox, and uses up what they have. It
// is outside of the sandbox otherwise: what stops it are the groups.
type hog struct {
	cmd  *exec.Cmd
	said bytes.Buffer
}

// searchPath of the commands that hogs are made of.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// hogGrace is how long the output of a hog is waited for when it has ended.
const hogGrace = 10 * time.Second

// join is what a hog does first.
const join = `for group in "$@"; do echo 0 > "$group" || exit 99; done; `

func (g groups) hog(ctx context.Context, script string) (*hog, error) {
	args := []string{"-c", join + script, "hog"}
	for _, dir := range g {
		args = append(args, filepath.Join(dir, "cgroup.procs"))
	}
	h := &hog{cmd: exec.CommandContext(ctx, "sh", args...)}
	h.cmd.Stdout, h.cmd.Stderr = &h.said, &h.said
	h.cmd.Env = []string{searchPath}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.Cancel = h.kill
	h.cmd.WaitDelay = hogGrace // for what it started and what has its output still
	return h, h.cmd.Start()
}

// kill ends it and what it started.
func (h *hog) kill() error {
	err := syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// wait gives how it ended, and what it said.
func (h *hog) wait() (string, error) {
	err := h.cmd.Wait()
	_ = h.kill() // what it started may be there still
	var status *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &status) && !errors.Is(err, exec.ErrWaitDelay):
		return "", err
	case status != nil && status.ExitCode() == 99:
		return "", fmt.Errorf("it could not join the groups of the sandbox: %s", h.said.String())
	}
	return strings.TrimSpace(h.said.String() + " " + h.cmd.ProcessState.String()), nil
}
