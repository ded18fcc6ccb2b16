//go:build linux

package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/process"
)

// startTimeout bounds a start that says nothing else.
const startTimeout = 10 * time.Second

// Start starts a sandbox and returns once its programs are running, or with a *[SetupError] that says which step failed
// and nothing left behind. ctx is the life of the sandbox, as in process.Start: when it ends all of it is killed. All
// of it ends as well when the outer program does, and when the caller dies in any way. The process that is returned is
// the outer program, and signals reach its group alone: it is the one to end the nested world in an orderly way.
func (l *Launcher) Start(ctx context.Context, launch Launch) (*process.Process, error) {
	s, root := &launch.Spec, os.Geteuid() == 0
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("isolation: %w", err)
	}
	if s.Nested != nil && foreignProc(s.Without) {
		s.Without = append(slices.Clone(s.Without), PIDNamespace)
	}
	files := slices.Clone(launch.ExtraFiles)
	if launch.Stdin != nil {
		files = append(files, launch.Stdin)
	}
	if err := errors.Join(checkFirstID(launch.FirstID, root, s.Without), checkFiles(files)); err != nil {
		return nil, err
	}
	trees, opened, err := openAll(s)
	if err != nil {
		return nil, err
	}
	defer closeAll(trees)
	control, theirs, err := socketpair()
	if err != nil {
		return nil, fmt.Errorf("isolation: %w", err)
	}
	defer func() { _ = control.close() }()
	p, err := process.Start(ctx, process.Spec{
		// The descriptor, and not the path, which the ids of the sandbox may have no way to.
		Path: fmt.Sprintf("/proc/self/fd/%d", 3+len(files)), Args: []string{roleOuter}, Dir: "/",
		Stdin: theirs, Stdout: launch.Stdout, Stderr: launch.Stderr,
		ExtraFiles: append(files, l.program), Attr: attr(s.Without, launch.FirstID, root),
	})
	if closed := theirs.Close(); err == nil && closed != nil {
		err = errors.Join(closed, p.Stop(0))
	}
	if err != nil {
		return nil, &SetupError{World: Outer, Step: "create namespaces", Reason: answer(err), cause: err}
	}
	st := &start{launch: &launch, process: p, control: control, root: root, trees: trees, opened: opened}
	if err := st.drive(); err != nil {
		return nil, errors.Join(err, p.Stop(0))
	}
	return p, nil
}

// answer is the kernel's part of an error, where it has one.
func answer(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// openAll opens the sources of all mounts, where the caller may.
func openAll(s *Spec) (trees []int, opened bool, err error) {
	if slices.Contains(s.Without, MountNamespace) {
		return nil, false, nil
	}
	trees, err = sources(s, s.Without)
	switch {
	case errors.Is(err, unix.EPERM): // not by us; by the launcher, which has the rights of its namespaces
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return slices.DeleteFunc(trees, func(fd int) bool { return fd < 0 }), true, nil
}

// checkFiles refuses descriptors that lead out of the sandbox.
func checkFiles(files []*os.File) error {
	if len(files) > maxExtra {
		return fmt.Errorf("isolation: %d extra files: at most %d", len(files), maxExtra)
	}
	for i, f := range files {
		if err := checkFile(f); err != nil {
			return fmt.Errorf("isolation: extra file %d: %w", i, err)
		}
	}
	return nil
}

func checkFile(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = conn.Control(func(fd uintptr) { refused = checkDescriptor(int(fd)) })
	return errors.Join(err, refused)
}

func checkDescriptor(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return errors.New("a folder leads to everything below and above it")
	case unix.S_IFSOCK:
	default:
		return nil
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	if domain != unix.AF_UNIX {
		return errors.New("a socket that is not a Unix socket leads to the network that it was made in: listen on a Unix socket")
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind == unix.SOCK_DGRAM {
		return errors.Join(err, errors.New("a datagram socket can be connected to another peer"))
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	if _, err := unix.Getpeername(fd); listens == 0 && err != nil {
		return errors.New("a Unix socket that neither listens nor is connected can be connected to anything")
	}
	return nil
}

// start is a sandbox that is being started.
type start struct {
	launch  *Launch
	process *process.Process
	control *channel
	root    bool
	trees   []int
	opened  bool
}

// drive answers the launchers until both have become their programs.
func (st *start) drive() error {
	timeout := st.launch.Timeout
	if timeout <= 0 {
		timeout = startTimeout
	}
	if err := st.control.deadline(timeout); err != nil {
		return fmt.Errorf("isolation: control socket: %w", err)
	}
	ready := false
	for {
		var r report
		_, pid, err := st.control.receive(&r)
		switch {
		case errors.Is(err, io.EOF) && ready:
			return nil
		case errors.Is(err, io.EOF):
			return &SetupError{World: Outer, Step: "launcher", Reason: "it ended without a word", cause: err}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &SetupError{World: Outer, Step: "launcher", Reason: fmt.Sprintf("not done within %s", timeout), cause: err}
		case err != nil:
			return fmt.Errorf("isolation: control socket: %w", err)
		case r.Failed != nil:
			return r.Failed
		case r.Ready:
			ready = true
			err = st.control.send(struct{}{})
		case r.Hello == Outer || (r.Hello == Nested && st.launch.Spec.Nested != nil):
			err = st.assign(r.Hello, pid)
		default:
			err = errors.New("the launcher sent what is not understood: is it of the same version?")
		}
		if err != nil {
			return fmt.Errorf("isolation: %w", err)
		}
	}
}

// assign places a world and tells its launcher what to do.
func (st *start) assign(w World, pid int) error {
	if st.launch.Place != nil {
		if err := st.launch.Place(w, pid); err != nil {
			return &SetupError{World: w, Step: "place", Reason: err.Error(), cause: err}
		}
	}
	s := &st.launch.Spec
	outer, nested := worldIDs(s.Without, st.launch.FirstID, st.root)
	if w == Nested {
		return st.control.send(assignment{Spec: *s.Nested, Without: s.Without, IDs: nested})
	}
	return st.control.send(assignment{
		Spec: *s, Without: s.Without, IDs: outer, Extra: len(st.launch.ExtraFiles), Stdin: st.launch.Stdin != nil, Trees: st.opened,
	}, st.trees...)
}
