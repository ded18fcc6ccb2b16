//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Arguments of the launcher program. They name a role and nothing else: what it shall do comes by its standard input.
const (
	roleOuter  = "outer-world"
	roleNested = "nested-world"
	roleProbe  = "probe"
)

// Main is the launcher program. It runs as the first process of the namespaces that [Launcher.Start] made, puts the
// layers on, starts the nested world if there is one, and becomes the program: it returns only where something failed,
// with the exit status. args is os.Args. It has to be called from main, before anything else.
func Main(args []string) int {
	// What a launcher changes it changes for one thread: the one that becomes the program.
	runtime.LockOSThread()
	role := ""
	if len(args) == 2 {
		role = args[1]
	}
	var w World
	switch role {
	case roleOuter:
		w = Outer
	case roleNested:
		w = Nested
	case roleProbe: // the trivial program of Probe
		return 0
	default:
		_, _ = fmt.Fprintln(os.Stderr, "This program is started by Cofferdam's sandbox provider; it does nothing by itself.")
		return 2
	}
	control, err := takeControl()
	if err != nil {
		return 2 // nobody is there to be told
	}
	err = run(w, control)
	var setup *SetupError
	if !errors.As(err, &setup) {
		setup = &SetupError{World: w, Step: "launcher", Reason: err.Error()}
	}
	if err := control.send(report{Failed: setup}); err != nil {
		return 2
	}
	return 1
}

// takeControl moves the control socket away from the standard input, which becomes the program's.
func takeControl() (*channel, error) {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, controlFD)
	if err != nil {
		return nil, err
	}
	return newChannel(fd, "control")
}

// controlFD is above every descriptor that a program can be given.
const controlFD = 3 + maxExtra + 1

// run makes a world and becomes its program. It returns where it failed.
func run(w World, control *channel) error {
	if err := control.send(report{Hello: w}); err != nil {
		return fmt.Errorf("ask for the world: %w", err)
	}
	var a assignment
	trees, _, err := control.receive(&a)
	if errors.Is(err, io.EOF) {
		return errors.New("whoever starts the sandbox is gone")
	}
	if err != nil {
		return fmt.Errorf("learn of the world: %w", err)
	}
	s := &setup{world: w, assignment: a, spec: &a.Spec, control: control}
	switch {
	case w == Nested:
		s.trees = inheritedTrees(s.spec)
	case a.Trees:
		if s.trees, err = receivedTrees(s.spec, trees); err != nil {
			return err
		}
	}
	return s.run()
}
