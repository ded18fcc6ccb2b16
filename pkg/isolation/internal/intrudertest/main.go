//go:build linux

// Command intrudertest is what the tests of package isolation put inside a sandbox.
// Each of its commands tries one thing that a sandbox has to keep from it, and
// says "reached" with what it got, or "refused" with the answer. Without such a
// command it is the launcher.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/isolation"
)

func main() {
	if len(os.Args) > 1 {
		if attack, ok := attacks()[os.Args[1]]; ok {
			os.Exit(tell(attack(os.Args[2:])))
		}
	}
	os.Exit(isolation.Main(os.Args))
}

// attacks are the commands. What they return goes to the standard output.
func attacks() map[string]func([]string) (string, error) {
	return map[string]func([]string) (string, error){
		"abstract": abstract,
		"agent":    agent,
		"call":     call,
		"children": children,
		"dial":     dial,
		"euid":     euid,
		"facts":    facts,
		"family":   family,
		"fill":     fill,
		"groups":   groups,
		"hostname": hostname,
		"newuser":  newUser,
		"open":     open,
		"overlook": overlook,
		"prober":   prober,
		"process":  process,
		"raise":    raise,
		"read":     read,
		"serve":    serve,
		"shm":      sharedMemory,
		"start":    start,
		"wait":     wait,
		"write":    write,
	}
}

func tell(got string, err error) int {
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(os.Stdout, "refused %v\n", err)
		return 1
	case got != "":
		_, _ = fmt.Fprintf(os.Stdout, "reached %s\n", strings.ReplaceAll(got, "\n", " "))
	}
	return 0
}

// patience is how long a command waits for the other world; longer than a test
// waits for the command.
const patience = time.Minute

// wait does nothing, until the sandbox ends.
func wait([]string) (string, error) {
	<-time.After(patience)
	return "", nil
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func listen(network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(context.Background(), network, address)
}
