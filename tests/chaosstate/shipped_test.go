package chaosstate_test

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/tests/stack"
)

// Nothing in an ordinary build stops at a point, and a program that would is known by
// how it was built.
func TestOnlyProgramsForThisTestHavePoints(t *testing.T) {
	with := filepath.Dir(stack.NeedFailpoints(t))
	without := filepath.Dir(stack.Need(t))
	for _, dir := range []string{with, without} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			path := filepath.Join(dir, e.Name())
			want := dir == with && slices.Contains(hunted(), e.Name())
			if want {
				seen++
			}
			if tagged, has := points(t, path); tagged != want || has != want {
				t.Errorf("%s: built with the tag: %v, stops at points: %v, want %v", path, tagged, has, want)
			}
		}
		if dir == with && seen != 3 {
			t.Errorf("%d programs in %s have points, want 3", seen, dir)
		}
	}
}

// hunted are the programs that have points.
func hunted() (names []string) {
	for _, p := range failpoint.All() {
		names = append(names, p.Program())
	}
	return names
}

// points says whether a program was built with the tag, and has what arms points.
func points(t *testing.T, path string) (tagged, has bool) {
	t.Helper()
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		tagged = tagged || s.Key == "-tags" && strings.Contains(s.Value, "failpoint")
	}
	if !slices.Contains(hunted(), filepath.Base(path)) {
		return tagged, false // the code has no points of it
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return tagged, bytes.Contains(raw, []byte("cofferdam.dev/pkg/failpoint.listen"))
}
