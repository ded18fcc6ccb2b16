package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds of a Spec; they keep a start from being a way to exhaust the machine.
const (
	maxMounts    = 64
	maxFiles     = 32
	maxFile      = 16 << 10
	maxPaths     = 64
	minOpenFiles = 16
	maxExtra     = 32
	// maxMessage bounds what is sent to a launcher, in bytes: one datagram of the control socket.
	maxMessage = 128 << 10
	// maxSpec bounds a whole Spec as JSON. What is sent along takes less than the difference.
	maxSpec = maxMessage - 1<<10
)

// Validate reports everything that is wrong with the Spec. It does not look at the host.
func (s *Spec) Validate() error {
	if err := s.validate(Outer); err != nil {
		return err
	}
	// Both worlds go to the outer launcher in one message.
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(b) > maxSpec {
		return fmt.Errorf("%d bytes as JSON, files and arguments of both worlds among them: at most %d", len(b), maxSpec)
	}
	return nil
}

func (s *Spec) validate(w World) error {
	errs := []error{s.Program.validate()}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Hostname == "" || len(s.Hostname) > 64 || strings.Trim(s.Hostname, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		fail("hostname: 1 to 64 characters of [a-z0-9.-]")
	}
	if len(s.Mounts) > maxMounts || len(s.Files) > maxFiles || len(s.Access.ReadOnly)+len(s.Access.ReadWrite) > maxPaths {
		fail("at most %d mounts, %d files and %d paths of access", maxMounts, maxFiles, maxPaths)
	}
	for i, m := range s.Mounts {
		if err := m.validate(w); err != nil {
			fail("mount %d: %w", i, err)
		}
	}
	for i, f := range s.Files {
		if !cleanPath(f.Path) || f.Path == "/" || len(f.Content) > maxFile || f.Mode&^0o777 != 0 {
			fail("file %d: an absolute, clean path, at most %d bytes, a mode of at most 0777", i, maxFile)
		}
	}
	for _, p := range append(append([]string{}, s.Access.ReadOnly...), s.Access.ReadWrite...) {
		if !cleanPath(p) {
			fail("access: %q is not an absolute, clean path", p)
		}
	}
	if s.Profile != ProfileWorker && s.Profile != ProfileProgram {
		fail("profile: %q or %q", ProfileWorker, ProfileProgram)
	}
	if n := s.Limits.OpenFiles; n != 0 && n < minOpenFiles {
		fail("limits: at least %d open files", minOpenFiles)
	}
	for i, l := range s.Without {
		if !l.known() || slices.Contains(s.Without[:i], l) {
			fail("without: %q is not a layer, or stands there twice", l)
		}
	}
	switch {
	case s.Nested == nil:
	case w == Nested:
		fail("nested: a nested world cannot have another")
	case len(s.Nested.Without) > 0:
		fail("nested: layers are left out in both worlds, by the outer Spec")
	default:
		if err := s.Nested.validate(Nested); err != nil {
			fail("nested: %w", err)
		}
	}
	return errors.Join(errs...)
}

func (m *Mount) validate(w World) error {
	switch {
	case !cleanPath(m.Target) || m.Target == "/":
		return fmt.Errorf("target %q is not an absolute, clean path below /", m.Target)
	case (m.Source != "") == (m.Tmpfs != nil):
		return errors.New("either a source or a tmpfs")
	case m.Tmpfs != nil:
		if m.Tmpfs.Size <= 0 || m.Tmpfs.Inodes <= 0 || m.Tmpfs.Mode&^0o3777 != 0 || m.FromOuter {
			return errors.New("a tmpfs has a size, a number of inodes, a mode of at most 03777, and no source")
		}
	case !cleanPath(m.Source):
		return fmt.Errorf("source %q is not an absolute, clean path", m.Source)
	case m.FromOuter && w != Nested:
		return errors.New("only a nested world can take from the outer one")
	}
	return nil
}

func (p *Program) validate() error {
	if !cleanPath(p.Path) || (p.Dir != "" && !cleanPath(p.Dir)) {
		return errors.New("program: path and folder are absolute and clean")
	}
	for i, a := range p.Args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("program: argument %d has a NUL", i) // it may be a secret, against all advice
		}
	}
	for i, kv := range p.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("program: environment entry %d is not name=value", i)
		}
	}
	return nil
}

// cleanPath reports whether p is absolute and says the shortest way.
func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}
