package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func create(t *testing.T, path string) Dir {
	t.Helper()
	d, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOnlyItsOwnerEntersADataFolder(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, filepath.Join(t.TempDir(), "new", "deep")} {
		d := create(t, path)
		for _, p := range []string{d.Path(), filepath.Dir(d.BindingKey()), filepath.Dir(d.Records())} {
			if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", p, info.Mode(), err)
			}
		}
	}
}

func TestAFolderWithOtherThingsIsLeftAlone(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("got %v, want a refusal that names the file", err)
	}
	after, err := os.Stat(path)
	if err != nil || after.Mode() != before.Mode() {
		t.Errorf("mode %v, was %v (%v)", after.Mode(), before.Mode(), err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestAFolderCanBeUsedAgainAndAlongItsOwnSample(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, nameSample), 0o700); err != nil {
		t.Fatal(err)
	}
	d := create(t, path)
	for _, f := range []string{d.Token(), d.in(nameLock), d.Running(), d.Config("agents"), d.in("notes.txt")} {
		if err := Write(f, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	create(t, path)
}

func TestOneStackUsesAFolderAtATime(t *testing.T) {
	d := create(t, t.TempDir())
	first, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); err == nil || !strings.Contains(err.Error(), "in use by process") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("got %v, want a refusal that names the process and what to do", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestFindAsksForAStart(t *testing.T) {
	if _, err := Find(t.TempDir()); err == nil || !strings.Contains(err.Error(), "cofferdam up") {
		t.Errorf("got %v", err)
	}
	if _, err := Find(""); err == nil {
		t.Error("an empty path was taken")
	}
}

func TestAKeyIsMadeOnceAndReadByNobodyElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	made := 0
	keep := func() ([]byte, error) {
		return Keep(path, 16, func() ([]byte, error) { made++; return []byte("secret"), nil })
	}
	for range 2 {
		if got, err := keep(); err != nil || string(got) != "secret" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if info, err := os.Stat(path); made != 1 || err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("made %d times, mode %v, %v", made, info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := keep(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
	if err := os.WriteFile(path, make([]byte, 17), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keep(); err == nil {
		t.Error("a file beyond its bound was read")
	}
}

func TestAReplacedFileIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, content := range []string{"long content", "short"} {
		if err := Write(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%q, %v", got, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRunningComesAndGoes(t *testing.T) {
	d := create(t, t.TempDir())
	if _, err := d.ReadRunning(); err == nil || !strings.Contains(err.Error(), "cofferdam up") {
		t.Errorf("before a start: %v", err)
	}
	want := Running{API: "http://127.0.0.1:1", Operator: "http://127.0.0.1:2", Agents: []string{"demo"}, PID: 3}
	if err := d.SetRunning(want); err != nil {
		t.Fatal(err)
	}
	got, err := d.ReadRunning()
	if err != nil || got.API != want.API || got.Operator != want.Operator || got.PID != want.PID {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 {
		if err := d.ClearRunning(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.ReadRunning(); err == nil {
		t.Error("still there")
	}
}
