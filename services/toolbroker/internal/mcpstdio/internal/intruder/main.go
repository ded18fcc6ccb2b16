//go:build linux

// Command intruder is the launcher of this package's tests, and with the argument
// "try" a hostile server over stdio: it tries to get at what is its broker's, says
// on its stderr what it got, and ends. It speaks no MCP.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/isolation"
)

func main() {
	if len(os.Args) == 6 && os.Args[1] == "try" {
		try(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		return
	}
	os.Exit(isolation.Main(os.Args))
}

// try attacks the process pid, which has a byte at an address that can be read, the
// files in a folder, and a listener on the loopback.
func try(pid, address, dir, listener string) {
	proc := "/proc/" + pid
	n, _ := strconv.Atoi(pid)
	for _, attempt := range []struct {
		name string
		do   func() error
	}{
		{"database", func() error { return read(dir + "/bindings.db") }},
		{"write", func() error { return os.WriteFile(dir+"/bindings.db", []byte("changed"), 0o600) }}, //nolint:gosec // it is meant to
		{"credential", func() error { return read(dir + "/token") }},
		{"folder", func() error { _, err := os.ReadDir(dir); return err }},
		{"environ", func() error { return read(proc + "/environ") }},
		{"command line", func() error { return read(proc + "/cmdline") }},
		{"memory", func() error { return memory(proc+"/mem", address) }},
		{"descriptors", func() error { _, err := os.ReadDir(proc + "/fd"); return err }},
		{"root", func() error { return read(proc + "/root" + dir + "/token") }},
		{"ptrace", func() error { return unix.PtraceSeize(n) }},
		{"signal", func() error { return unix.Kill(n, 0) }},
		{"socket", func() error { return dial("unix", dir+"/broker.sock") }},
		{"abstract socket", func() error { return dial("unix", "@cofferdam-test-"+pid) }},
		{"loopback", func() error { return dial("tcp", listener) }},
	} {
		if err := attempt.do(); err != nil {
			fmt.Fprintf(os.Stderr, "refused %s: %v\n", attempt.name, err)
		} else {
			fmt.Fprintf(os.Stderr, "GOT %s\n", attempt.name)
		}
	}
	fmt.Fprintf(os.Stderr, "uid %d gid %d pid %d\n", os.Getuid(), os.Getgid(), os.Getpid())
}

func read(path string) error {
	b, err := os.ReadFile(path) //nolint:gosec // it is meant to
	if err == nil && len(b) == 0 {
		err = errors.New("empty")
	}
	return err
}

func memory(path, address string) error {
	at, err := strconv.ParseInt(address, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Open(path) //nolint:gosec // it is meant to
	if err != nil {
		return err
	}
	_, err = f.ReadAt(make([]byte, 1), at)
	return errors.Join(err, f.Close())
}

func dial(network, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return c.Close()
}
