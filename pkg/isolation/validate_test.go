//go:build linux

package isolation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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
		"files together":         func(s *isolation.Spec) { s.Files = files(16) },
		"files of the nested":    func(s *isolation.Spec) { s.Nested.Files = files(16) },
		"files of both":          func(s *isolation.Spec) { s.Files, s.Nested.Files = files(4), files(4) },
		"escapes":                func(s *isolation.Spec) { s.Files = files(3); s.Files[1].Content = strings.Repeat("\x01", 16<<10) },
		"arguments":              func(s *isolation.Spec) { s.Program.Args = []string{strings.Repeat("hunter2", 20<<10)} },
		"layers again and again": func(s *isolation.Spec) { s.Without = slices.Repeat([]isolation.Layer{isolation.UID}, 100) },
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

// files are as large as files may be.
func files(n int) []isolation.File {
	out := make([]isolation.File, n)
	for i := range out {
		out[i] = isolation.File{Path: fmt.Sprintf("/etc/%d", i), Content: strings.Repeat("x", 16<<10), Mode: 0o444}
	}
	return out
}

// What Validate lets through can be sent to the launchers, at the very bound.
func TestTheLargestSpecStarts(t *testing.T) {
	needs(t, isolation.Layers()...)
	spec := nested("wait")
	spec.Program.Args = []string{"euid", "any"}
	spec.Nested.Files = files(7)
	spec.Files = files(1)
	rest := &spec.Files[0].Content
	for spec.Validate() != nil {
		*rest = (*rest)[1:]
	}
	if b, err := json.Marshal(spec); err != nil || len(b) < 125<<10 || len(*rest) == 16<<10 {
		t.Fatalf("%d bytes, %d in the last file, %v", len(b), len(*rest), err)
	}
	if reached, detail := attempt(t, spec); !reached {
		t.Errorf("refused: %s", detail)
	}
}

// Root never lends its own id, whatever is left out, and nobody else can give others away.
func TestFirstID(t *testing.T) {
	l := launcher(t)
	root := os.Geteuid() == 0
	for name, tc := range map[string]struct {
		without []isolation.Layer
		firstID uint32
		refused bool
	}{
		"none":                           {nil, 0, true},
		"none, all one":                  {[]isolation.Layer{isolation.UID}, 0, root},
		"none, without namespace":        {[]isolation.Layer{isolation.UserNamespace}, 0, true},
		"none, all one without anything": {[]isolation.Layer{isolation.UserNamespace, isolation.UID}, 0, root},
		"beyond":                         {nil, 1<<31 - 4, true},
		"given":                          {nil, 1 << 30, !root},
	} {
		launch := isolation.Launch{Spec: outer("euid", "any"), FirstID: tc.firstID, Timeout: time.Millisecond}
		launch.Spec.Without = tc.without
		p, err := l.Start(t.Context(), launch)
		if err == nil {
			_ = p.Stop(0)
		}
		// What is not refused is tried, and hardly done in a millisecond.
		_, tried := errors.AsType[*isolation.SetupError](err)
		tried = tried || errors.Is(err, os.ErrDeadlineExceeded)
		if (err != nil && !tried) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if root {
		if missing, err := l.Probe(t.Context(), 0); err == nil {
			t.Errorf("a probe with the host's root: missing %v", missing)
		}
	}
}

// No id of the host that something inside has is root's.
func TestNobodyInsideIsRoot(t *testing.T) {
	needs(t, isolation.Layers()...)
	for name, without := range map[string][]isolation.Layer{
		"all layers": nil, "all one": {isolation.UID}, "without namespace": {isolation.UserNamespace, isolation.UID},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		spec := outer("wait")
		spec.Without = without
		p, err := launcher(t).Start(t.Context(), isolation.Launch{Spec: spec, FirstID: nextID(), Stdout: w})
		if err := errors.Join(err, r.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		if err := errors.Join(err, p.Stop(0)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "Uid:"); ok && slices.Contains(strings.Fields(ids), "0") {
				t.Errorf("%s: its ids on the host are %s", name, ids)
			}
		}
	}
}

func without(l isolation.Layer, args ...string) isolation.Spec {
	s := outer(args...)
	s.Without = []isolation.Layer{l}
	return s
}
