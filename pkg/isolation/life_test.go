//go:build linux

package isolation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/pkg/process"
)

// brood is a sandbox in both worlds of which processes have sessions of their own and hold the output open.
func brood() isolation.Spec {
	s := nested("children", "3")
	s.Program.Args = []string{"children", "3"}
	return s
}

// Everything ends with process 1, with the context, and with whoever started it.
func TestNothingOutlivesTheSandbox(t *testing.T) {
	needs(t, isolation.PIDNamespace)
	t.Run("stop", func(t *testing.T) {
		s := begin(t, isolation.Launch{Spec: brood(), FirstID: nextID()})
		s.says(t)
		s.says(t)
		if err := s.Stop(0); err != nil {
			t.Fatal(err)
		}
		s.silent(t)
	})
	t.Run("context", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		p, err := launcher(t).Start(ctx, isolation.Launch{Spec: brood(), FirstID: nextID(), Stdout: w})
		_ = w.Close()
		if err != nil {
			t.Fatal(err)
		}
		s := &sandbox{Process: p, line: lines(t, r)}
		s.says(t)
		s.says(t)
		cancel()
		<-p.Done()
		s.silent(t)
	})
	t.Run("caller is killed", func(t *testing.T) {
		s := caller(t, brood())
		s.says(t)
		s.says(t)
		if err := s.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.silent(t)
	})
}

// caller starts a sandbox from another process.
func caller(t *testing.T, spec isolation.Spec) *sandbox {
	t.Helper()
	order, err := json.Marshal(map[string]any{"Spec": spec, "FirstID": nextID()})
	if err != nil {
		t.Fatal(err)
	}
	in, orders, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	// Not in a group of its own that is killed with it: what ends here ends by the kernel.
	p, err := process.Start(t.Context(), process.Spec{
		Path: intruder, Args: []string{"start"}, Stdin: in, Stdout: w, Stderr: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = orders.Write(order)
	if err := errors.Join(err, orders.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return &sandbox{Process: p, line: lines(t, r)}
}

// The end of the worker's program ends the nested world, and its exit status is the sandbox's.
func TestSandboxEndsWithItsProgram(t *testing.T) {
	needs(t, isolation.PIDNamespace)
	spec := nested("children", "3")
	spec.Program.Args = []string{"read", "/nowhere"}
	s := begin(t, isolation.Launch{Spec: spec, FirstID: nextID()})
	s.silent(t)
	<-s.Done()
	var exit *process.ExitError
	if err := s.Err(); !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
}

// Each world is placed once, by a pid that is its first process's, before anything of it runs.
func TestWorldsArePlaced(t *testing.T) {
	needs(t, isolation.PIDNamespace)
	var mu sync.Mutex
	pids := map[isolation.World]int{}
	s := begin(t, isolation.Launch{Spec: brood(), FirstID: nextID(), Place: func(w isolation.World, pid int) error {
		mu.Lock()
		defer mu.Unlock()
		if pids[w] != 0 {
			t.Errorf("%s world placed twice", w)
		}
		pids[w] = pid
		return nil
	}})
	for w, last := range map[isolation.World]string{isolation.Outer: "\t1\n", isolation.Nested: "\t1\n"} {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pids[w]), "status"))
		if err != nil {
			t.Fatal(w, err)
		}
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "NSpid:") && !strings.HasSuffix(line, last) {
				t.Errorf("%s world: %s", w, line)
			}
		}
	}
	if pids[isolation.Outer] != s.PID() {
		t.Errorf("placed %d, the process is %d", pids[isolation.Outer], s.PID())
	}
	refused := errors.New("no cgroup")
	for _, refuse := range []isolation.World{isolation.Outer, isolation.Nested} {
		_, err := launcher(t).Start(t.Context(), isolation.Launch{Spec: brood(), FirstID: nextID(), Place: func(w isolation.World, _ int) error {
			if w == refuse {
				return refused
			}
			return nil
		}})
		var setup *isolation.SetupError
		if !errors.As(err, &setup) || !errors.Is(err, refused) || setup.World != refuse || setup.Step != "place" {
			t.Errorf("%s world: %v", refuse, err)
		}
	}
}

// What fails inside is told by step, world and layer, and nothing is left of it.
func TestFailedStepsAreTold(t *testing.T) {
	needs(t, isolation.Layers()...)
	for name, tc := range map[string]struct {
		change func(s *isolation.Spec)
		want   isolation.SetupError
	}{
		"no such source": {func(s *isolation.Spec) {
			s.Mounts = append(s.Mounts, isolation.Mount{Target: "/x", Source: "/nonexistent"})
		}, isolation.SetupError{World: isolation.Outer, Layer: isolation.MountNamespace, Step: "open /nonexistent", Reason: "no such file"}},
		"no such source of the nested world": {func(s *isolation.Spec) {
			s.Nested.Mounts = append(s.Nested.Mounts, isolation.Mount{Target: "/x", Source: "/nonexistent"})
		}, isolation.SetupError{World: isolation.Nested, Layer: isolation.MountNamespace, Step: "open /nonexistent", Reason: "no such file"}},
		"no such path of the outer world": {func(s *isolation.Spec) {
			s.Nested.Mounts = append(s.Nested.Mounts, isolation.Mount{Target: "/x", Source: "/usr", FromOuter: true})
		}, isolation.SetupError{World: isolation.Nested, Layer: isolation.MountNamespace, Step: "open /usr of the outer world", Reason: "no such file"}},
		"target in a read-only mount": {func(s *isolation.Spec) {
			dir := open(t)
			s.Mounts = append(s.Mounts, isolation.Mount{Target: "/x", Source: dir, ReadOnly: true}, isolation.Mount{Target: "/x/y", Source: dir})
		}, isolation.SetupError{World: isolation.Outer, Layer: isolation.MountNamespace, Step: "root", Reason: "mount /x/y: read-only"}},
		"target behind a link": {func(s *isolation.Spec) {
			dir := open(t)
			if err := os.Symlink("/tmp", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			s.Mounts = append(s.Mounts, isolation.Mount{Target: "/x", Source: dir}, isolation.Mount{Target: "/x/link", Source: dir})
		}, isolation.SetupError{World: isolation.Outer, Layer: isolation.MountNamespace, Step: "root", Reason: "mount /x/link: not a directory"}},
		"access to what is not there": {func(s *isolation.Spec) {
			s.Nested.Access.ReadOnly = []string{"/nonexistent"}
		}, isolation.SetupError{World: isolation.Nested, Layer: isolation.Landlock, Step: "landlock rules", Reason: "access to /nonexistent: no such file"}},
		"no such folder": {func(s *isolation.Spec) { s.Program.Dir = "/nonexistent" }, isolation.SetupError{World: isolation.Outer, Step: "working folder", Reason: "no such file"}},
		"no such program": {func(s *isolation.Spec) {
			s.Mounts[0].Target, s.Without = "/bin/other", []isolation.Layer{isolation.Landlock}
		}, isolation.SetupError{World: isolation.Outer, Step: "start " + inside, Reason: "no such file"}},
		"not a program": {func(s *isolation.Spec) {
			s.Nested.Files = []isolation.File{{Path: "/program", Mode: 0o444}}
			s.Nested.Program.Path = "/program"
		}, isolation.SetupError{World: isolation.Nested, Step: "start /program", Reason: "permission denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := brood()
			tc.change(&spec)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			p, err := launcher(t).Start(t.Context(), isolation.Launch{Spec: spec, FirstID: nextID(), Stdout: w})
			_ = w.Close()
			if err == nil {
				_ = p.Stop(0)
				t.Fatal("started")
			}
			var got *isolation.SetupError
			if !errors.As(err, &got) || got.World != tc.want.World || got.Layer != tc.want.Layer || got.Step != tc.want.Step ||
				!strings.Contains(got.Reason, tc.want.Reason) {
				t.Errorf("%v, want %v", err, &tc.want)
			}
			(&sandbox{line: lines(t, r)}).silent(t)
		})
	}
}

// What a program is told stands neither in the arguments nor in the environment of the launcher, nor in errors.
func TestSpecIsNotSeenOutside(t *testing.T) {
	needs(t, isolation.Layers()...)
	const secret = "hunter2"
	spec := brood()
	spec.Program.Env = []string{"TOKEN=" + secret}
	begun := begin(t, isolation.Launch{Spec: spec, FirstID: nextID(), Place: func(_ isolation.World, pid int) error {
		for _, name := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
			if err != nil || bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s of the launcher: %q, %v", name, b, err)
			}
		}
		return nil
	}})
	begun.says(t)
	spec.Program.Path = "/nonexistent"
	spec.Without = []isolation.Layer{isolation.Landlock}
	if p, err := launcher(t).Start(t.Context(), isolation.Launch{Spec: spec, FirstID: nextID()}); err == nil {
		_ = p.Stop(0)
		t.Error("started")
	} else if strings.Contains(err.Error(), secret) {
		t.Error("the error shows the environment")
	}
}

// By hand, the launcher does nothing.
func TestLauncherByHand(t *testing.T) {
	for _, args := range [][]string{nil, {"outer-world"}, {"nested-world"}, {"outer-world", "x"}} {
		cmd := exec.CommandContext(t.Context(), intruder, args...)
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%v: %v", args, err)
		}
	}
}
