//go:build linux

package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A tree of any depth, width and mode is gone afterwards, and what links point to
// is not.
func TestEmpty(t *testing.T) {
	t.Parallel()
	root, base := sandbox(t)
	must(t, os.WriteFile(filepath.Join(base, "out", "f"), nil, 0o600))
	must(t, errors.Join(
		root.Symlink("../out", "link"), root.Symlink("/", "top"), root.Mkdir("closed", 0o700), root.Mkdir("closed/in", 0o700),
		root.WriteFile("closed/in/f", nil, 0o000), root.Symlink(base, "closed/in/link"), root.Chmod("closed/in", 0), root.Chmod("closed", 0o500),
		root.Mkdir("wide", 0o755), unix.Mkfifo(filepath.Join(base, "root", "pipe"), 0o600),
	))
	for i := range 3000 {
		must(t, root.WriteFile(fmt.Sprintf("wide/%d", i), nil, 0o600))
		if i%10 == 0 {
			must(t, root.Mkdir(fmt.Sprintf("wide/d%d", i), 0o755))
		}
	}
	// Deeper than a path can name, as a program makes it step by step.
	at, err := root.OpenRoot(".")
	must(t, err)
	for range 5000 {
		must(t, at.Mkdir("d", 0o755))
		below, err := at.OpenRoot("d")
		must(t, err)
		must(t, at.Close())
		at = below
	}
	must(t, at.WriteFile("f", nil, 0o600))
	must(t, at.Close())

	must(t, Empty(t.Context(), root))
	left, err := os.ReadDir(filepath.Join(base, "root"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(base, "out", "f")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Empty(ctx, root); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
