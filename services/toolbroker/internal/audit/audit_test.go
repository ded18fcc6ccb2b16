package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, path string, most int64) *File {
	t.Helper()
	f, err := OpenFile(path, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// lines are the records in the file and those put aside; other is what is none.
func lines(t *testing.T, path string) (seen map[string]int, other []string) {
	t.Helper()
	seen = map[string]int{}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			var r Record
			if json.Unmarshal(s.Bytes(), &r) != nil || r.Call == "" {
				other = append(other, s.Text())
				continue
			}
			seen[r.Call]++
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return seen, other
}

func TestEveryRecordIsThereOnceAcrossRotations(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	f := open(t, path, 1) // MinMaxBytes
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 100 {
				if err := f.Append(t.Context(), Record{Call: fmt.Sprintf("%d-%d", worker, i), ToolID: strings.Repeat("x", 200)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(f.Check(t.Context()), f.Close()); err != nil {
		t.Error(err)
	}
	if err := f.Append(t.Context(), Record{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	seen, other := lines(t, path)
	if len(seen) != 800 || len(other) != 0 {
		t.Errorf("%d records, and %q", len(seen), other)
	}
	for call, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", call, n)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 2 {
		t.Errorf("files: %v %v", files, err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 || info.Size() > MinMaxBytes {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

// Half a line that a crash left spoils no other record.
func TestATornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"call":"before"}`+"\n"+`{"call":"to`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, path, DefaultMaxBytes)
	if err := f.Append(t.Context(), Record{Call: "after"}); err != nil {
		t.Fatal(err)
	}
	seen, other := lines(t, path)
	if seen["before"] != 1 || seen["after"] != 1 || len(other) != 1 {
		t.Errorf("%v %q", seen, other)
	}
}

// A record that cannot be written is an error, for as long as that lasts.
func TestAFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.jsonl")
	d := &disk{path: path, most: MinMaxBytes}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	if err := d.f.Close(); err != nil { // what a broken disk would do
		t.Fatal(err)
	}
	if err := d.write([]byte("{}\n")); err != nil {
		t.Errorf("it is not opened anew: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := d.write([]byte("{}\n")); err == nil {
		t.Error("a line was written to a folder that is gone")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.write([]byte("{}\n")); err != nil {
		t.Errorf("it does not recover: %v", err)
	}
	d.close()

	f := open(t, path, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(t.Context(), Record{Call: "lost"}); err == nil || f.Check(t.Context()) == nil {
		t.Errorf("a record was written to a file without a name: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Check(t.Context()); err != nil {
		t.Errorf("it does not recover: %v", err)
	}
	if err := f.Append(t.Context(), Record{Call: "kept"}); err != nil {
		t.Error(err)
	}
	if seen, _ := lines(t, path); seen["kept"] != 1 || seen["lost"] != 0 {
		t.Errorf("%v", seen)
	}
	if _, err := OpenFile(filepath.Join(dir, "none", "audit.jsonl"), 0); err == nil {
		t.Error("opened in a folder that is not there")
	}
}

func TestOneProcessAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	open(t, path, 0)
	if f, err := OpenFile(path, 0); err == nil {
		t.Errorf("opened twice: %v", f.Close())
	}
	loose := filepath.Join(t.TempDir(), "loose")
	if err := os.WriteFile(loose, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(loose, 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenFile(loose, 0); err == nil {
		t.Errorf("a file that others can read: %v", f.Close())
	}
	f := open(t, filepath.Join(t.TempDir(), "big"), 0)
	if err := f.Append(t.Context(), Record{ToolID: strings.Repeat("x", maxRecord)}); err == nil {
		t.Error("a record without bounds")
	}
}

func TestSubjectsAreDigested(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := func(name, text string, mode os.FileMode) (Digester, error) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return ReadKey(path)
	}
	a, err := key("a", strings.Repeat("a", 32), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b, err := key("b", strings.Repeat("b", 32), 0o400)
	if err != nil {
		t.Fatal(err)
	}
	one := a.Subject("user:alice")
	if one != a.Subject("user:alice") || one == a.Subject("user:bob") || one == b.Subject("user:alice") || strings.Contains(one, "alice") || a.Subject("") != "" {
		t.Errorf("digest %s", one)
	}
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
	}{"short": {"x", 0o600}, "open": {strings.Repeat("x", 32), 0o644}, "long": {strings.Repeat("x", maxKey+1), 0o600}} {
		if _, err := key(name, c.text, c.mode); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := ReadKey(dir); err == nil {
		t.Error("a folder is a key")
	}
}
