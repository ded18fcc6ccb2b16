//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// World is one of the two worlds of a sandbox.
type World string

// The worlds.
const (
	Outer  World = "outer"
	Nested World = "nested"
)

// Launcher starts sandboxes by means of a launcher program, one whose main is [Main]. Its methods can be called from
// any goroutine.
type Launcher struct {
	path    string
	program *os.File
}

// Launch is one sandbox to start.
type Launch struct {
	Spec Spec
	// FirstID is the first of [IDsPerSandbox] host ids, used as uids and as gids, that belong to this sandbox alone for
	// as long as it lives and for as long as files of its are kept. Id n inside is FirstID+n on the host. Root has to
	// give one, whatever Spec.Without says: nothing inside is ever id 0 of the host. Nobody else can: it is zero then,
	// every id is the caller's own, and the layer [UID] is among Spec.Without.
	FirstID uint32
	// Stdin becomes the standard input of the outer program, which is the null device otherwise. What holds for
	// ExtraFiles holds for it.
	Stdin *os.File
	// Stdout and Stderr take the output of both worlds' programs, as in process.Spec.
	Stdout, Stderr io.Writer
	// ExtraFiles become the descriptors 3, 4 and so on of the outer program, at most 32; the nested one has none. A
	// descriptor carries what it was opened with past every wall, so folders are refused, and so are sockets that are
	// not Unix sockets which listen or are connected: a TCP listener of the host's network can be turned into a
	// connection to anywhere there.
	ExtraFiles []*os.File
	// Place, if set, is called once for each world, before anything runs in it and before its cgroup namespace is
	// made: the time to move it into a cgroup. pid is that of its first process as the caller sees it. Its error ends
	// the start.
	Place func(w World, pid int) error
	// Timeout of the start; zero is ten seconds.
	Timeout time.Duration
}

// SetupError says which step of a start failed.
type SetupError struct {
	World World `json:"world"`
	// Layer that could not be put on, or "" where the step belongs to none.
	Layer Layer `json:"layer,omitempty"`
	// Step is what was tried, such as "hostname".
	Step string `json:"step"`
	// Reason is what the kernel answered.
	Reason string `json:"reason"`

	cause error
}

// Error is one line for operators. It names paths, and neither arguments nor environment.
func (e *SetupError) Error() string {
	s := fmt.Sprintf("isolation: %s world: %s: %s", e.World, e.Step, e.Reason)
	if e.Layer != "" {
		s += fmt.Sprintf(" (layer %s)", e.Layer)
	}
	return s
}

// Unwrap gives the cause where it is known in this process.
func (e *SetupError) Unwrap() error { return e.cause }

// NewLauncher opens the launcher program. Anybody must be allowed to read and execute the file; the folders above it
// may be closed. It is opened once: one that is put in its place later is not used.
func NewLauncher(path string) (*Launcher, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("isolation: launcher %q is not an absolute path", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("isolation: launcher: %w", err)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o005 != 0o005) {
		err = fmt.Errorf("%s has mode %s: let anybody read and execute it (chmod 755)", path, info.Mode())
	}
	if err != nil {
		return nil, fmt.Errorf("isolation: launcher: %w", errors.Join(err, f.Close()))
	}
	return &Launcher{path: path, program: f}, nil
}

// Close gives the program up. Sandboxes that run go on.
func (l *Launcher) Close() error { return l.program.Close() }
