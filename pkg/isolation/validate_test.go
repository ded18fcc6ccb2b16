//go:build linux

package isolation_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/isolation"
)

func TestValidate(t *testing.T) {
	valid := func() isolation.Spec {
		s := nested("wait")
		return s
	}
	s := valid()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	tmpfs := isolation.Tmpfs{Size: 1, Inodes: 1}
	for name, change := range map[string]func(s *isolation.Spec){
		"hostname":               func(s *isolation.Spec) { s.Hostname = "a b" },
		"profile":                func(s *isolation.Spec) { s.Profile = "" },
		"relative program":       func(s *isolation.Spec) { s.Program.Path = "sh" },
		"relative folder":        func(s *isolation.Spec) { s.Program.Dir = "." },
		"environment":            func(s *isolation.Spec) { s.Program.Env = []string{"hunter2"} },
		"NUL in environment":     func(s *isolation.Spec) { s.Program.Env = []string{"A=hunter2\x00"} },
		"NUL in argument":        func(s *isolation.Spec) { s.Program.Args = []string{"hunter2\x00"} },
		"unclean target":         func(s *isolation.Spec) { s.Mounts[0].Target = "/a/../b" },
		"target root":            func(s *isolation.Spec) { s.Mounts[0].Target = "/" },
		"relative source":        func(s *isolation.Spec) { s.Mounts[0].Source = "usr" },
		"neither":                func(s *isolation.Spec) { s.Mounts[0].Source = "" },
		"both":                   func(s *isolation.Spec) { s.Mounts[0].Tmpfs = &tmpfs },
		"unbounded tmpfs":        func(s *isolation.Spec) { s.Mounts[1].Tmpfs = &isolation.Tmpfs{Inodes: 1} },
		"unbounded inodes":       func(s *isolation.Spec) { s.Mounts[1].Tmpfs = &isolation.Tmpfs{Size: 1} },
		"setuid tmpfs":           func(s *isolation.Spec) { s.Mounts[1].Tmpfs = &isolation.Tmpfs{Size: 1, Inodes: 1, Mode: 0o4755} },
		"outer takes from outer": func(s *isolation.Spec) { s.Mounts[0].FromOuter = true },
		"setuid file":            func(s *isolation.Spec) { s.Files = []isolation.File{{Path: "/x", Mode: 0o4755}} },
		"big file":               func(s *isolation.Spec) { s.Files = []isolation.File{{Path: "/x", Content: strings.Repeat("x", 1<<20)}} },
		"relative access":        func(s *isolation.Spec) { s.Access.ReadWrite = []string{"tmp"} },
		"many mounts":            func(s *isolation.Spec) { s.Mounts = make([]isolation.Mount, 65) },
		"few open files":         func(s *isolation.Spec) { s.Limits.OpenFiles = 3 },
		"unknown layer":          func(s *isolation.Spec) { s.Without = []isolation.Layer{"selinux"} },
		"nested without":         func(s *isolation.Spec) { s.Nested.Without = []isolation.Layer{isolation.Seccomp} },
		"nested in nested":       func(s *isolation.Spec) { s.Nested.Nested = &isolation.Spec{} },
		"nested is wrong":        func(s *isolation.Spec) { s.Nested.Hostname = "" },
	} {
		s := valid()
		change(&s)
		err := s.Validate()
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a value: %v", name, err)
		}
	}
}

// Root never lends its own id, and nobody else can give others away.
func TestFirstID(t *testing.T) {
	l := launcher(t)
	root := outer("wait")
	root.Without = []isolation.Layer{isolation.UserNamespace, isolation.UID}
	for name, launch := range map[string]isolation.Launch{
		"none":                   {Spec: outer("wait")},
		"root without namespace": {Spec: root},
		"beyond":                 {Spec: outer("wait"), FirstID: 1<<31 - 4},
	} {
		if p, err := l.Start(t.Context(), launch); err == nil {
			_ = p.Stop(0)
			t.Errorf("%s: started", name)
		}
	}
}

func without(l isolation.Layer, args ...string) isolation.Spec {
	s := outer(args...)
	s.Without = []isolation.Layer{l}
	return s
}
