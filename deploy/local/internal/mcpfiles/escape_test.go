package mcpfiles_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/deploy/local/internal/mcpfiles"
)

// No path leads out of the folder, whatever it goes through (CVE-2025-53109,
// CVE-2025-53110, CVE-2026-4307).
func TestNothingOutsideIsReached(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for link, target := range map[string]string{
		"file-link":      filepath.Join(s.outside, "secret.txt"),
		"folder-link":    s.outside,
		"relative-link":  "../dir-evil/secret.txt",
		"link-to-parent": "..",
		"link-to-root":   "/",
		"link-to-link":   "file-link",
		"proc-link":      "/proc/self/root",
	} {
		if err := os.Symlink(target, filepath.Join(s.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{
		"parent":                       "..",
		"file of the sibling":          "../dir-evil/secret.txt",
		"up and down":                  "a/../../dir-evil/secret.txt",
		"dots in the middle":           "./.././dir-evil/secret.txt",
		"absolute":                     filepath.Join(s.outside, "secret.txt"),
		"absolute, the folder itself":  s.dir,
		"prefix of the folder's name":  s.dir + "-evil/secret.txt",
		"machine's root":               "/",
		"link to a file":               "file-link",
		"link to a folder":             "folder-link",
		"through a link to a folder":   "folder-link/secret.txt",
		"relative link":                "relative-link",
		"through a link to the parent": "link-to-parent/dir-evil/secret.txt",
		"through a link to the root":   "link-to-root/etc/passwd",
		"link to a link":               "link-to-link",
		"through proc":                 "proc-link/etc/passwd",
		"NUL":                          "secret\x00.txt",
		"not UTF-8":                    "\xff",
		"very long":                    strings.Repeat("a/", 3000),
		"backslashes":                  `..\dir-evil\secret.txt`,
		"escaped dots":                 "%2e%2e/dir-evil/secret.txt",
	} {
		for _, tool := range []string{mcpfiles.ToolRead, mcpfiles.ToolList} {
			text, isError := s.call(t, tool, path)
			if !isError {
				t.Errorf("%s: %s answered %q", name, tool, text)
			}
			if strings.Contains(text, secret) || strings.Contains(text, "root:") || strings.Contains(text, filepath.Dir(s.dir)) {
				t.Errorf("%s: the error of %s tells %q", name, tool, text)
			}
		}
	}
}

// A folder on the path that is swapped for a link out, again and again, while it
// is read through: check and use are one step.
func TestLinkSwappedInBetweenCheckAndUse(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := filepath.Join(s.dir, "way")
	if err := os.Mkdir(filepath.Join(s.dir, "good"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.dir, "good", "secret.txt"), "harmless")
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			target := []string{"good", s.outside}[i%2]
			next := way + ".next"
			if err := errors.Join(os.Symlink(target, next), os.Rename(next, way)); err != nil {
				stopped <- err
				return
			}
		}
	}()
	good := 0
	for deadline := time.Now().Add(10 * time.Second); good < 50 && time.Now().Before(deadline); {
		text, isError := s.call(t, mcpfiles.ToolRead, "way/secret.txt")
		if strings.Contains(text, secret) {
			t.Fatal("what is outside was read")
		}
		if !isError && text == "harmless" {
			good++
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if good == 0 {
		t.Error("the way inside was never open: the test shows nothing")
	}
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if err := syscall.Mkfifo(filepath.Join(s.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", "folder", "."} {
		if text, isError := s.call(t, mcpfiles.ToolRead, name); !isError { // a pipe that blocks hangs the test
			t.Errorf("%s was read: %q", name, text)
		}
	}
	if text, isError := s.call(t, mcpfiles.ToolList, "pipe"); !isError {
		t.Errorf("the pipe was listed: %q", text)
	}
}

// Nothing that a client can send changes the folder: there is no tool for it.
func TestTheFolderStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	write(t, filepath.Join(s.dir, "a.txt"), "a")
	tools, err := s.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		if tool.Annotations == nil || !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s does not say that it only reads", tool.Name)
		}
		s.call(t, tool.Name, "new.txt")
	}
	if _, err := os.Stat(filepath.Join(s.dir, "new.txt")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a tool made a file: %v", err)
	}
}
