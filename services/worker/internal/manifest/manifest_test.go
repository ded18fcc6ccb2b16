package manifest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
)

// shelf has the contents of handles, and counts what was read.
type shelf struct {
	contents map[string]string
	reads    int
}

func (s *shelf) Read(_ context.Context, f harness.File, maxBytes int) ([]byte, error) {
	s.reads++
	text, ok := s.contents[f.Handle]
	switch {
	case !ok:
		return nil, fault.New(fault.HandleDenied, "test")
	case len(text) > maxBytes:
		return nil, fault.New(fault.RequestTooLarge, "test")
	}
	return []byte(text), nil
}

func file(path, content string) manifest.File {
	return manifest.File{Path: path, Handle: content, Size: uint64(len(content)), SHA256: sha256.Sum256([]byte(content)), MIMEType: "text/plain"}
}

func files(fs ...manifest.File) manifest.Manifests { return manifest.Manifests{Files: fs} }

// tree is what stands in a folder, with modes.
func tree(t *testing.T, folder string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		out = append(out, fmt.Sprintf("%v %s", info.Mode(), rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

func TestMaterialize(t *testing.T) {
	workspace := t.TempDir()
	s := &shelf{contents: map[string]string{"a skill": "a skill", "a script": "a script", "": "", "a file": "a file"}}
	m, err := manifest.Materialize(t.Context(), workspace, manifest.Manifests{
		Skills: []manifest.File{file("pdf/SKILL.md", "a skill"), file("pdf/scripts/run.py", "a script")},
		Files:  []manifest.File{file("in.txt", "a file"), file("empty", "")},
	}, s)
	if err != nil {
		t.Fatal(err)
	}
	want := `dr-xr-xr-x files
-r--r--r-- files/empty
-r--r--r-- files/in.txt
dr-xr-xr-x skills
dr-xr-xr-x skills/pdf
-r--r--r-- skills/pdf/SKILL.md
dr-xr-xr-x skills/pdf/scripts
-r--r--r-- skills/pdf/scripts/run.py`
	if got := tree(t, workspace); got != want {
		t.Errorf("there is\n%s", got)
	}
	var told []string
	for _, f := range m.Files {
		told = append(told, f.Path)
		content, err := os.ReadFile(filepath.Join(workspace, f.Path))
		if err != nil || uint64(len(content)) != f.Size || f.MIMEType != "text/plain" {
			t.Errorf("%s: %q, %v", f.Path, content, err)
		}
	}
	if !slices.Equal(told, []string{"skills/pdf/SKILL.md", "skills/pdf/scripts/run.py", "files/in.txt", "files/empty"}) {
		t.Errorf("it tells of %q", told)
	}
	for range 2 {
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	}
	if got := tree(t, workspace); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestNothingToMaterialize(t *testing.T) {
	m, err := manifest.Materialize(t.Context(), "/nonexistent", manifest.Manifests{}, nil)
	if err != nil || len(m.Files) != 0 {
		t.Errorf("got %+v, %v", m, err)
	}
	if err := errors.Join(m.Remove(), (*manifest.Materialized)(nil).Remove()); err != nil {
		t.Error(err)
	}
}

// What cannot be used is refused before anything is read or written.
func TestCheck(t *testing.T) {
	deep := strings.Repeat("a/", 8) + "a"
	large := file("a", "x")
	large.Size = manifest.MaxFileBytes + 1
	var heavy manifest.Manifests
	for i := range 9 {
		f := file(fmt.Sprint("f", i), "x")
		f.Size = manifest.MaxFileBytes
		if i%2 == 0 {
			heavy.Skills = append(heavy.Skills, f)
		} else {
			heavy.Files = append(heavy.Files, f)
		}
	}
	for name, c := range map[string]struct {
		m    manifest.Manifests
		code fault.Code
	}{
		"up":                      {files(file("../a", "x")), fault.InvalidRequest},
		"up in the middle":        {files(file("a/../b", "x")), fault.InvalidRequest},
		"absolute":                {files(file("/etc/passwd", "x")), fault.InvalidRequest},
		"no name":                 {files(file("", "x")), fault.InvalidRequest},
		"an empty name":           {files(file("a//b", "x")), fault.InvalidRequest},
		"a folder":                {files(file("a/", "x")), fault.InvalidRequest},
		"hidden":                  {files(file("a/.b", "x")), fault.InvalidRequest},
		"a dot":                   {files(file(".", "x")), fault.InvalidRequest},
		"a backslash":             {files(file(`a\b`, "x")), fault.InvalidRequest},
		"NUL":                     {files(file("a\x00", "x")), fault.InvalidRequest},
		"not ASCII":               {files(file("ä", "x")), fault.InvalidRequest},
		"right to left":           {files(file("a\u202eb", "x")), fault.InvalidRequest},
		"a long name":             {files(file(strings.Repeat("a", 101), "x")), fault.InvalidRequest},
		"too deep":                {files(file(deep, "x")), fault.InvalidRequest},
		"twice":                   {files(file("a", "x"), file("a", "x")), fault.InvalidRequest},
		"twice, in another case":  {files(file("a/README", "x"), file("a/readme", "y")), fault.InvalidRequest},
		"folders of two cases":    {files(file("A/b", "x"), file("a/B", "y")), fault.InvalidRequest},
		"a file and a folder":     {files(file("a", "x"), file("a/b", "y")), fault.InvalidRequest},
		"a folder and a file":     {files(file("a/b", "x"), file("A", "y")), fault.InvalidRequest},
		"too many":                {files(make([]manifest.File, manifest.MaxFiles+1)...), fault.InvalidRequest},
		"too large":               {files(large), fault.RequestTooLarge},
		"too large together":      {heavy, fault.RequestTooLarge},
		"a skill that is no path": {manifest.Manifests{Skills: []manifest.File{file("..", "x")}}, fault.InvalidRequest},
	} {
		workspace, s := t.TempDir(), &shelf{}
		_, err := manifest.Materialize(t.Context(), workspace, c.m, s)
		if !fault.Is(err, c.code) || s.reads != 0 || tree(t, workspace) != "" {
			t.Errorf("%s: %v, after %d reads", name, err, s.reads)
		}
	}
	if err := files(file("a/b", "x"), file("a/c", "y"), file("b", "z"), file(deep[2:], "x")).Check(); err != nil {
		t.Error(err)
	}
	same := manifest.Manifests{Skills: []manifest.File{file("a", "x")}, Files: []manifest.File{file("a", "x")}}
	if err := same.Check(); err != nil { // in folders of their own
		t.Error(err)
	}
}

// What fails in the middle leaves nothing behind.
func TestMaterializeFails(t *testing.T) {
	for name, c := range map[string]struct {
		second manifest.File
		stand  func(workspace string) error
		code   fault.Code
		left   string
	}{
		"a handle":               {file("b", "of another run"), nil, fault.HandleDenied, ""},
		"another content":        {manifest.File{Path: "b", Handle: "one", Size: 3}, nil, fault.PersistenceFailed, ""},
		"a shorter one":          {manifest.File{Path: "b", Handle: "one", Size: 4, SHA256: sha256.Sum256([]byte("one"))}, nil, fault.PersistenceFailed, ""},
		"a longer one":           {manifest.File{Path: "b", Handle: "one", Size: 2, SHA256: sha256.Sum256([]byte("one"))}, nil, fault.RequestTooLarge, ""},
		"a folder that is there": {file("b", "one"), func(w string) error { return os.Mkdir(filepath.Join(w, "files"), 0o700) }, fault.PersistenceFailed, "drwx------ files"},
		"a link out":             {file("b", "one"), func(w string) error { return os.Symlink("/tmp", filepath.Join(w, "files")) }, fault.PersistenceFailed, "Lrwxrwxrwx files"},
		"no workspace":           {file("b", "one"), os.Remove, fault.SandboxNotReady, ""},
	} {
		t.Run(name, func(t *testing.T) {
			workspace := filepath.Join(t.TempDir(), "workspace")
			if err := os.Mkdir(workspace, 0o700); err != nil {
				t.Fatal(err)
			}
			if c.stand != nil {
				if err := c.stand(workspace); err != nil {
					t.Fatal(err)
				}
			}
			_, err := manifest.Materialize(t.Context(), workspace, manifest.Manifests{
				Skills: []manifest.File{file("x/y", "one")}, Files: []manifest.File{file("a", "one"), c.second},
			}, &shelf{contents: map[string]string{"one": "one"}})
			if !fault.Is(err, c.code) {
				t.Errorf("got %v", err)
			}
			if fault.Is(err, fault.SandboxNotReady) {
				return
			}
			if got := tree(t, workspace); got != c.left {
				t.Errorf("there is\n%s", got)
			}
		})
	}
	if _, err := manifest.Materialize(t.Context(), "", files(file("a", "x")), &shelf{}); !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("without a workspace: %v", err)
	}
}

// A workspace that went before is nothing to complain about.
func TestRemoveAfterTheWorkspace(t *testing.T) {
	workspace := filepath.Join(t.TempDir(), "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Materialize(t.Context(), workspace, files(file("a", "x")), &shelf{contents: map[string]string{"x": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Join(workspace, "files"), 0o700), os.RemoveAll(workspace)); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(); err != nil {
		t.Error(err)
	}
}

// FuzzPath: whatever path is taken stays below its folder, and is removed with
// it.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"a/b.txt", "../a", "a/../../b", "a//b", ".", "\x00", "A/a/A", "a\u202e"} {
		f.Add(p, "b")
	}
	f.Fuzz(func(t *testing.T, path, second string) {
		parent := t.TempDir()
		workspace := filepath.Join(parent, "w")
		if err := os.Mkdir(workspace, 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Materialize(t.Context(), workspace, files(file(path, "x"), file(second, "x")), &shelf{contents: map[string]string{"x": "x"}})
		if got, err := os.ReadDir(parent); err != nil || len(got) != 1 {
			t.Fatalf("%q led out of the workspace: %v, %v", path, got, err)
		}
		if err != nil {
			return
		}
		for _, f := range m.Files {
			if !filepath.IsLocal(f.Path) || !strings.HasPrefix(filepath.Clean(f.Path), "files/") {
				t.Fatalf("%q became %q", path, f.Path)
			}
		}
		if err := m.Remove(); err != nil || tree(t, workspace) != "" {
			t.Fatalf("%q was left behind: %v", path, err)
		}
	})
}
