//go:build linux

package process_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("COFFERDAM_TEST_SECRET", "inherited")
	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"nil":   {nil, ""},
		"empty": {[]string{}, ""},
		"exact": {[]string{"A=1", "B="}, "A=1\nB="},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := spec(t, "environment")
			s.Env, s.Stdout = tc.env, &out
			if err := finished(t, start(t, s)); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Errorf("environment of the child is %q, want %q", out.String(), tc.want)
			}
		})
	}
}

// The child has the standard streams and the descriptors that were named. One that was opened here without
// close-on-exec, as a descriptor from our own parent would be, does not reach it.
func TestDescriptorsAreNotInherited(t *testing.T) {
	leak := openWithoutCloseOnExec(t)
	named, err := os.Create(filepath.Join(t.TempDir(), "named"))
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()

	var out bytes.Buffer
	s := spec(t, "descriptors")
	s.Stdout, s.Stderr, s.ExtraFiles = &out, nil, []*os.File{named}
	if err := finished(t, start(t, s)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{"0 /dev/null", "2 /dev/null", "3 " + named.Name()}
	got := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, "1 pipe:") })
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("descriptors of the child: %q, want a pipe as 1 and %q; %q leaked in the test", lines, want, leak)
	}
}

// openWithoutCloseOnExec opens a file the way that leaks it into children and returns its name.
func openWithoutCloseOnExec(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leak")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return path
}
