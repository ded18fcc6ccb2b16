//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// setup is the launcher of one world at work.
type setup struct {
	assignment
	world   World
	spec    *Spec
	control *channel
	// trees are the sources of the mounts of the outer world and then of the nested one; the nested launcher has its own.
	trees   []int
	ruleset int
}

// step is one of the things that a launcher does. It is left out with its layer.
type step struct {
	layer Layer
	name  string
	do    func() error
}

// run does all steps, in the order that each needs: what takes rights comes before they are dropped, and what looks at
// the host before the root is left.
func (s *setup) run() error {
	unix.Umask(0) // modes are what the Spec says
	for _, st := range []step{
		{CgroupNamespace, "cgroup namespace", func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }},
		{MountNamespace, "sources of mounts", s.openSources},
		{MountNamespace, "root", s.makeRoot},
		{ReadOnlyRoot, "read-only root", s.seal},
		{UTSNamespace, "hostname", s.name},
		{NetworkNamespace, "loopback", s.loopback},
		{"", "nested world", s.startNested},
		{Landlock, "landlock rules", s.rules},
		{"", "working folder", func() error { return unix.Chdir(s.dir()) }},
		{"", "descriptors", s.descriptors},
		{"", "capabilities", func() error { return bound(s.keep()) }},
		{"", "user and group", func() error { return become(s.IDs.of(own(s.world))) }},
		{"", "parent", s.tie},
		{NoNewPrivileges, "no new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{Landlock, "landlock", func() error { return restrict(s.ruleset) }},
		{ResourceLimits, "limits", s.spec.Limits.set},
		{Seccomp, "seccomp", func() error { return loadFilters(s.spec.Profile) }},
		{"", "capabilities", func() error { return dropCaps(s.keep()) }},
		{"", "start " + s.spec.Program.Path, s.become},
	} {
		if slices.Contains(s.Without, st.layer) {
			continue
		}
		if err := st.do(); err != nil {
			return failure(s.world, st.layer, st.name, err)
		}
	}
	return nil
}

// failure gives the SetupError of a step, which is err itself where a step of that step has made one.
func failure(w World, l Layer, name string, err error) *SetupError {
	if setup, ok := errors.AsType[*SetupError](err); ok {
		return setup
	}
	return &SetupError{World: w, Layer: l, Step: name, Reason: err.Error(), cause: err}
}

func (s *setup) without(l Layer) bool { return slices.Contains(s.Without, l) }

// keep is what capabilities the program has.
func (s *setup) keep() []int {
	// Where all ids are one the runner has the program's, and needs nothing to end what it starts.
	if s.world == Nested && !s.without(UID) {
		return runnerCaps
	}
	return nil
}

func (s *setup) dir() string {
	if s.spec.Program.Dir == "" {
		return "/"
	}
	return s.spec.Program.Dir
}

// openSources opens by path what the caller could not open for us, for both worlds: the nested launcher sees nothing
// of the host any more.
func (s *setup) openSources() error {
	if s.Trees || s.world == Nested {
		return nil
	}
	trees, err := sources(s.spec, s.Without)
	s.trees = trees
	return err
}

func (s *setup) makeRoot() error {
	return makeRoot(s.spec, s.trees[:len(s.spec.mounts())], s.IDs, s.Without)
}

// seal makes the root read-only. Without a mount namespace the root is the host's,
// which is let alone.
func (s *setup) seal() error {
	if s.without(MountNamespace) {
		return nil
	}
	return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

func (s *setup) name() error {
	if err := unix.Sethostname([]byte(s.spec.Hostname)); err != nil {
		return err
	}
	return unix.Setdomainname([]byte("(none)")) // the kernel's own default
}

// loopback brings the only interface up.
func (s *setup) loopback() error {
	if s.world == Nested {
		return nil // it is the outer world's
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func (s *setup) rules() error {
	fd, err := landlockRules(s.spec, s.without(MountNamespace))
	s.ruleset = fd
	return err
}

// descriptors leaves the standard streams and the named ones to the program.
func (s *setup) descriptors() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	in := null
	if s.Stdin {
		in = 3 + s.Extra
	}
	if err := unix.Dup3(in, 0, 0); err != nil {
		return err
	}
	return unix.CloseRange(uint(3+s.Extra), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// tie makes sure that nothing is left when who started us dies: a change of ids has taken back what clone arranged.
func (s *setup) tie() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if s.world == Nested {
		return nil
	}
	// It may have died in between.
	if err := s.control.send(report{Ready: true}); err != nil {
		return err
	}
	_, _, err := s.control.receive(&struct{}{})
	return err
}

func (l *Limits) set() error {
	for _, r := range []struct {
		resource int
		value    uint64
		always   bool
	}{
		// One, because zero does not keep the kernel from piping a dump to a program of the host, and one does.
		{unix.RLIMIT_CORE, 1, true},
		{unix.RLIMIT_MSGQUEUE, 0, true},
		{unix.RLIMIT_NOFILE, l.OpenFiles, false},
		{unix.RLIMIT_NPROC, l.Processes, false},
		{unix.RLIMIT_FSIZE, l.FileSize, false},
		{unix.RLIMIT_MEMLOCK, l.LockedMemory, false},
	} {
		if r.value == 0 && !r.always {
			continue
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(r.resource, &now); err != nil {
			return err
		}
		limit := min(r.value, now.Max)
		// That of package syscall, which then does not put its own idea of open files back at execve.
		if err := syscall.Setrlimit(r.resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("resource %d: %w", r.resource, err)
		}
	}
	return nil
}

// become replaces the launcher by the program. The control socket closes with it.
func (s *setup) become() error {
	unix.Umask(0o022)
	p := s.spec.Program
	env := p.Env
	if env == nil {
		env = []string{}
	}
	return syscall.Exec(p.Path, append([]string{p.Path}, p.Args...), env) //nolint:gosec // to run it is what this is for
}
