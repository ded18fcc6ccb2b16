//go:build linux

package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// leftBehind is a hierarchy in which managers have died: of "stuck" something
// cannot be removed, of "a" and "z" all can.
func leftBehind(t *testing.T) (h hierarchy, parent string) {
	t.Helper()
	h = tree(t, map[string]string{"cgroup.controllers": "memory pids cpu\n", "cgroup.subtree_control": ""})
	parent = filepath.Join(h.dir, parentName)
	for _, dir := range []string{"a/group", "stuck/group", "stuck/other", "z"} {
		if err := os.MkdirAll(filepath.Join(parent, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// No process can be had that does not end; a file cannot be removed as a group is.
	if err := os.WriteFile(filepath.Join(parent, "stuck/group/x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return h, parent
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// What cannot be removed is named, keeps nobody from opening a manager and nothing
// else from being removed, and is tried again.
func TestWhatIsStuckIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, parent := leftBehind(t)
		begun := time.Now()
		m, err := open(t.Context(), []hierarchy{h})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > sweepTimeout {
			t.Errorf("it took %v", took)
		}
		left := m.Leftovers()
		if len(left) != 1 || left[0].Dir != filepath.Join(parent, "stuck") || left[0].Err == nil {
			t.Fatalf("left: %v", left)
		}
		if said := left[0].String(); !strings.Contains(said, left[0].Dir) || !strings.Contains(said, "tried again") {
			t.Error(said)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if got := names(t, parent); got != "stuck" {
			t.Errorf("there are %s", got)
		}
		if got := names(t, filepath.Join(parent, "stuck")); got != "group" {
			t.Errorf("of what is stuck there are %s", got)
		}

		if err := os.Remove(filepath.Join(parent, "stuck/group/x")); err != nil {
			t.Fatal(err)
		}
		if m, err = open(t.Context(), []hierarchy{h}); err != nil {
			t.Fatal(err)
		}
		if left := m.Leftovers(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Who opens a manager and does not wait any longer gets none.
func TestTheSweepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := leftBehind(t)
		ctx, cancel := context.WithTimeout(t.Context(), leftTimeout/2)
		defer cancel()
		if _, err := open(ctx, []hierarchy{h}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// A folder that cannot be held is not left, and neither is its descriptor.
func TestWhatCannotBeHeldIsGivenBack(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string) (repair func()){
		"locked": func(t *testing.T, dir string) func() {
			t.Helper()
			other, err := os.Open(dir)
			if err == nil {
				err = unix.Flock(int(other.Fd()), unix.LOCK_EX)
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = other.Close() }
		},
		"not there": func(t *testing.T, dir string) func() {
			t.Helper()
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			return func() {}
		},
		"not usable": func(t *testing.T, dir string) func() {
			t.Helper()
			// What stands in the way of the trial is none of the manager's.
			if err := os.Symlink("/", filepath.Join(dir, "try")); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.RemoveAll(dir) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := own{hierarchy: hierarchy{unified: true, controllers: Controllers()}, dir: filepath.Join(t.TempDir(), "own")}
			if err := os.Mkdir(o.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			repair := spoil(t, o.dir)
			if err := o.hold(map[Controller]error{}); err == nil {
				t.Error("it is held")
			}
			if o.lock != nil {
				if err := o.lock.Close(); !errors.Is(err, os.ErrClosed) {
					t.Errorf("the lock was open: %v", err)
				}
			}
			if _, err := os.Stat(o.dir); name == "locked" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
			repair()
		})
	}
}
