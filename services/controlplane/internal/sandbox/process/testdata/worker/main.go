// Command worker is what the tests run in sandboxes: it inherits a listener,
// serves nothing, and does what its last argument says.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// forgotten ends a helper that a failing test forgot.
const forgotten = 2 * time.Minute

func main() {
	mode := ""
	for _, arg := range os.Args {
		if m, ok := strings.CutPrefix(arg, "--helper="); ok {
			mode = m
		}
	}
	os.Exit(run(mode))
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func run(mode string) int {
	switch mode {
	case "exit":
		return 3
	case "patient":
		say("up")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		say("ignoring")
	case "noisy":
		line := strings.Repeat("x", 1023)
		for range 3 * 4 << 10 {
			say("%s", line)
		}
		say("the last line")
	case "litter":
		if os.MkdirAll("a/b", 0o700) != nil || os.WriteFile("a/b/secret", []byte("of a conversation"), 0o600) != nil {
			return 5
		}
		if err := exec.Command("/cofferdam/worker", "--helper=stubborn").Start(); err != nil { //nolint:noctx // it is to be left
			say("no child: %v", err)
		}
		say("littered")
	case "look":
		look()
	case "host":
		host()
	case "hog":
		return hog()
	case "bomb":
		return bomb()
	case "fill":
		return fill()
	case "spin":
		say("spinning")
		for { //nolint:staticcheck // that is what it is for
		}
	}
	if mode == "stubborn" {
		<-time.After(forgotten)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case <-asked:
	case <-time.After(forgotten):
	}
	return 0
}

// look says what there is to be seen.
func look() {
	procs, _ := os.ReadDir("/proc")
	pids := slices.DeleteFunc(procs, func(e os.DirEntry) bool { return strings.Trim(e.Name(), "0123456789") != "" })
	say("processes: %d, mine is %d", len(pids), os.Getpid())
	say("ids: %d %d", os.Getuid(), os.Getgid())
	_, err := os.ReadDir("/")
	say("root is readable: %t", err == nil)
	say("root is writable: %t", os.WriteFile("/x", nil, 0o600) == nil)
	for _, name := range []string{"capability", "toolbroker", "statefacade", "filebroker", "modelproxy", "workload"} {
		c, err := net.Dial("unix", "/run/cofferdam/"+name+".sock") //nolint:noctx // it is there or not
		if err != nil {
			say("service %s: %v", name, err)
			continue
		}
		_ = c.Close()
		say("service %s: there", name)
	}
	say("looked")
}

// host has the runner look around, run into its limits, and look again.
func host() {
	for _, order := range []string{"look", "hog", "bomb", "look"} {
		say("%s", ask(order))
	}
	_, err := os.ReadFile("/workspace/from-program")
	say("the program's file: %v", err)
	say("done")
}

func ask(order string) string {
	for range 500 {
		c, err := net.Dial("unix", "/run/runner/runner.sock") //nolint:noctx // it is there or comes soon
		if err == nil {
			_, werr := fmt.Fprintln(c, order)
			answer, rerr := io.ReadAll(c)
			if werr != nil || rerr != nil {
				return fmt.Sprintf("%s: %v, %v", order, werr, rerr)
			}
			return strings.TrimSpace(string(answer))
		}
		if !errors.Is(err, syscall.ENOENT) {
			return fmt.Sprintf("%s: %v", order, err)
		}
		<-time.After(10 * time.Millisecond)
	}
	return order + ": no runner"
}

// hog takes memory without end.
func hog() int {
	say("taking")
	var held [][]byte
	for len(held) < 1<<12 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	return 6 // 4 GiB without anybody minding
}

// bomb starts children until it is refused one, and gives up.
func bomb() int {
	for n := range 4000 {
		c := exec.Command("/cofferdam/worker", "--helper=patient") //nolint:noctx // the sandbox ends it
		if err := c.Start(); err != nil {
			say("refused after %d: %v", n, err)
			return 7
		}
	}
	return 6
}

// fill writes until the disk is full, and gives up. It begins when somebody connects,
// who has seen that it runs.
func fill() int {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err == nil {
		_, err = l.Accept()
	}
	if err != nil {
		say("nobody connects: %v", err)
		return 9
	}
	f, err := os.Create("full")
	for n := 0; err == nil; n++ {
		if n > 4<<10 {
			return 6 // 4 GiB without anybody minding
		}
		_, err = f.Write(make([]byte, 1<<20))
	}
	say("full: %v", err)
	if !errors.Is(err, syscall.ENOSPC) {
		return 8
	}
	return 7
}
