//go:build linux

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Spec says what to start. Nothing is taken from the environment of this process except where a field says so.
type Spec struct {
	// Path is the absolute path of the program. PATH is never searched.
	Path string
	// Args are the arguments after the program's name, which is Path. Any user of the machine can read them: no secrets.
	Args []string
	// Env is the whole environment, "name=value" each. Nil is an empty environment, not an inherited one.
	Env []string
	// Dir is the working directory; empty is that of this process.
	Dir string
	// Stdin is the standard input; nil is the null device. For a pipe, use os.Pipe and close the read end after Start.
	Stdin *os.File
	// Stdout and Stderr take the output; nil is the null device. An *os.File is given to the child as it is. To any
	// other writer a goroutine copies, and Done waits for it: a Write that blocks holds Done up for at most a second
	// after the child has exited.
	Stdout, Stderr io.Writer
	// ExtraFiles become the descriptors 3, 4 and so on. Those and the standard streams are the only ones of the child.
	ExtraFiles []*os.File
	// Attr, if set, changes how the child is created: credentials, namespaces, cgroup. It is called once, before the
	// start. What it does to Setpgid, Pgid and Pdeathsig has no effect, and Foreground is refused; Setsid is allowed.
	Attr func(*syscall.SysProcAttr)
	// NoNewPrivileges keeps the child, and what it starts, from getting other ids or capabilities by executing a file:
	// no setuid bit counts for it.
	NoNewPrivileges bool
}

// command turns the specification into a command that has not started.
func (s *Spec) command() (*exec.Cmd, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{}
	if s.Attr != nil {
		s.Attr(attr)
	}
	if attr.Foreground {
		return nil, errors.New("process: a child cannot be in the foreground of a terminal")
	}
	// A session leader already leads a group of its own, and may not move to another.
	attr.Setpgid, attr.Pgid = !attr.Setsid, 0
	attr.Pdeathsig = syscall.SIGKILL
	env := s.Env
	if env == nil {
		env = []string{} // os/exec inherits for nil
	}
	cmd := &exec.Cmd{
		Path:        s.Path,
		Args:        append([]string{s.Path}, s.Args...),
		Env:         env,
		Dir:         s.Dir,
		Stdout:      s.Stdout,
		Stderr:      s.Stderr,
		ExtraFiles:  s.ExtraFiles,
		SysProcAttr: attr,
		WaitDelay:   outputDelay,
	}
	if s.Stdin != nil { // a nil *os.File in the interface would not be nil
		cmd.Stdin = s.Stdin
	}
	return cmd, nil
}

func (s *Spec) validate() error {
	var errs []error
	if !filepath.IsAbs(s.Path) {
		errs = append(errs, fmt.Errorf("process: program path %q is not absolute", s.Path))
	}
	for i, kv := range s.Env {
		// The value may be a secret, and so may a malformed entry as a whole.
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			errs = append(errs, fmt.Errorf("process: environment entry %d is not name=value", i))
		}
	}
	return errors.Join(errs...)
}
