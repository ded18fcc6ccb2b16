// Command runner is what the tests run in the nested world: it listens where it is
// told and tells what it sees, and it runs into its limits when it is asked to.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "--child" {
		child(os.Args[2])
	}
	path := ""
	for i, arg := range os.Args {
		if arg == "--listen" && i+1 < len(os.Args) {
			path = strings.TrimPrefix(os.Args[i+1], "unix://")
		}
	}
	l, err := net.Listen("unix", path) //nolint:noctx // it ends with its world
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // as the real one does
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		order, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			continue
		}
		_, _ = fmt.Fprintln(c, obey(strings.TrimSpace(order)))
		_ = c.Close()
	}
}

func obey(order string) string {
	switch order {
	case "look":
		return look()
	case "bomb", "hog":
		return misbehave(order)
	default:
		return "unknown"
	}
}

func look() string {
	entries, _ := os.ReadDir("/proc")
	pids := 0
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") == "" {
			pids++
		}
	}
	var found []string
	for _, path := range []string{"/run/cofferdam", "/cofferdam/worker", "/cofferdam/harness.json", "/etc/passwd", "/usr/lib", "/usr/bin"} {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	shared := os.WriteFile("/workspace/from-program", []byte("x"), 0o644) //nolint:gosec // the worker reads it
	return fmt.Sprintf("processes %d, id %d, found %s, workspace %v, env %q, args %q", pids, os.Getuid(), strings.Join(found, " "), shared, os.Environ(), os.Args[3:])
}

// misbehave starts a child that runs into a limit, as the program's own user.
func misbehave(how string) string {
	cmd := exec.Command("/cofferdam/runner", "--child", how) //nolint:noctx // its limit ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	err := cmd.Run()
	counters := ""
	for _, name := range []string{"pids.events", "memory.oom_control", "memory.events"} {
		raw, err := os.ReadFile("/run/limits/" + name)
		if err == nil {
			counters += " " + strings.Join(strings.Fields(string(raw)), " ")
		}
	}
	return fmt.Sprintf("%s: %v;%s", how, err, counters)
}

// child runs into a limit.
func child(how string) {
	switch how {
	case "sleep":
		select {}
	case "hog":
		var held [][]byte
		for len(held) < 1<<12 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
		}
	case "bomb":
		for range 4000 {
			if err := exec.Command("/cofferdam/runner", "--child", "sleep").Start(); err != nil { //nolint:noctx // its world ends it
				os.Exit(7)
			}
		}
	}
	os.Exit(6)
}
