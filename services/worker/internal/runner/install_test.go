//go:build linux

package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestInstallReadiesAWorldOfAnotherImage(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	at := filepath.Join(base, "runner")
	folders := []string{filepath.Join(base, "w", "home"), filepath.Join(base, "w", "workspace"), filepath.Join(base, "w", "tmp")}
	args := []string{"-install", at, "-home", folders[0], "-workspace", folders[1], "-temp", folders[2]}
	var said bytes.Buffer
	if code := Main(args, &said); code != 0 {
		t.Fatalf("exit code %d: %s", code, said.String())
	}
	want, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(at)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes, the program %d: %v", len(got), len(want), err)
	}
	if info, err := os.Stat(at); err != nil || info.Mode() != modeInstalled {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	for _, f := range folders {
		if info, err := os.Stat(f); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", f, err)
		}
	}
	// What is there already may be the program's: it is not trusted.
	if code := Main(args, &said); code != 1 {
		t.Errorf("installed over another file: exit code %d", code)
	}
}
