//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/isolation"
)

// process looks at a process: its command line, environment or memory.
func process(args []string) (string, error) {
	return read([]string{"/proc/" + args[0] + "/" + args[1]})
}

// groups says in which control groups of the host it is.
func groups([]string) (string, error) {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[2] != "/" {
			found = append(found, fields[2])
		}
	}
	if len(found) == 0 {
		return "", errors.New("nothing but /")
	}
	return fmt.Sprint(found), nil
}

// newUser starts a process in a new user namespace.
func newUser([]string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", "euid", "any")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return "namespace", cmd.Run()
}

// euid says who it is, where that is the id that it is told of.
func euid(args []string) (string, error) {
	id := strconv.Itoa(os.Geteuid())
	if args[0] != "any" && args[0] != id {
		return "", fmt.Errorf("effective uid is %s", id)
	}
	return id, nil
}

// raise becomes another program.
func raise(args []string) (string, error) { return "", syscall.Exec(args[0], args, []string{}) }

// call makes a system call with up to three arguments.
func call(args []string) (string, error) {
	var a [4]uintptr
	for i := range args {
		a[i] = uintptr(number(args[i]))
	}
	r, _, errno := unix.Syscall(a[0], a[1], a[2], a[3])
	if errno != 0 {
		return "", errno
	}
	return fmt.Sprint(r), nil
}

// agent does the rest as the agent of a nested world, whose runner this is. The
// folder, if there is one, gets a secret and a socket of the runner's, which
// anybody could use who could enter it.
func agent(args []string) (string, error) {
	folder, rest := args[0], args[1:]
	if folder != "" {
		if err := os.WriteFile(folder+"/secret", []byte("of the runner"), 0o644); err != nil {
			return "", err
		}
		syscall.Umask(0)
		l, err := listen("unix", folder+"/runner.sock")
		if err != nil {
			return "", err
		}
		defer func() { _ = l.Close() }()
	}
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", rest...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if os.Geteuid() == isolation.RunnerInside { // where ids are all one it is the agent's already
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
			Uid: isolation.AgentInside, Gid: isolation.AgentInside,
		}}
	}
	_ = cmd.Run() // it has spoken for itself
	return "", nil
}

// overlook starts an agent, as its runner, and says which processes it sees.
func overlook([]string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", "wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: isolation.AgentInside, Gid: isolation.AgentInside}}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); err != nil {
		return "", err
	}
	return "the agent", nil
}

// children starts processes that wait and hold the standard output open.
func children(args []string) (string, error) {
	for range number(args[0]) {
		cmd := exec.CommandContext(context.Background(), "/proc/self/exe", "wait")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return "", err
		}
	}
	_ = tell("children", nil)
	return wait(nil)
}
