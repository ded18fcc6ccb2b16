package blobstore_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/blob/blobtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) blobstore.Store {
	t.Helper()
	b, err := blobstore.Open(t.Context(), blobstore.Address{URL: "file://" + dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestFolder(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "new", "folder"))
	})
}

// tree lists everything below dir with its mode.
func tree(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	out := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		out[strings.TrimPrefix(path, dir)] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFolderIsForItsOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	w, err := open(t, dir).Create(t.Context(), "objects/digest/obj_1")
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range tree(t, dir) { // also the temporary file
		if mode.Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, mode)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	got := tree(t, dir)
	if len(got) != 5 || got["/objects/digest/obj_1"] != 0o600 || got[""].Perm() != 0o700 {
		t.Errorf("the folder has %v", got)
	}
}

func TestAbortLeavesNoFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	w, err := open(t, dir).Create(t.Context(), "objects/digest/obj_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range tree(t, dir) {
		if !mode.IsDir() {
			t.Errorf("%s was left behind", name)
		}
	}
}

// Whoever can write into the folder leads nobody out of it.
func TestNoLinkLeadsOutOfTheFolder(t *testing.T) {
	outside, dir := t.TempDir(), filepath.Join(t.TempDir(), "folder")
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "objects")), os.Symlink(secret, filepath.Join(dir, "file"))); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"objects/secret", "file"} {
		if r, err := b.Open(t.Context(), key, 0); err == nil {
			t.Errorf("%s was read through a link: %v", key, r.Close())
		}
	}
	w, err := b.Create(t.Context(), "objects/new")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err == nil {
		t.Error("it was written through a link")
	}
	_ = b.Delete(t.Context(), "objects/secret")
	if got := tree(t, outside); len(got) != 2 {
		t.Errorf("outside there is %v", got)
	}
}

// What a process that died was writing goes, and what another one writes stays.
func TestOpenRemovesWhatWasAbandoned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	for range 2 {
		if _, err := open(t, dir).Create(t.Context(), "objects/digest/obj_1"); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "incoming"))
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "incoming", entries[0].Name()), old, old); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, "incoming"))
	if err != nil || len(left) != 1 || left[0].Name() != entries[1].Name() {
		t.Errorf("left is %v, %v", left, err)
	}
}

func TestOpenFolderOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := blobstore.Open(t.Context(), blobstore.Address{URL: "file://" + dir}); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("got %v", err)
	}
}
