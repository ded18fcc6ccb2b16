package blobstore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/blobstore"
	"cofferdam.dev/services/filebroker/internal/files/blobstore/blobstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *blobstore.Bucket {
	t.Helper()
	b, err := blobstore.Open("file://" + dir)
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
	blobstoretest.Run(t, func(t *testing.T) files.Blobs {
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
	for name, mode := range tree(t, dir) { // also the temporary file, beside the final one
		if mode.Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, mode)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	got := tree(t, dir)
	if len(got) != 4 || got["/objects/digest/obj_1"] != 0o600 || got[""].Perm() != 0o700 {
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

func TestOpenFolderOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := blobstore.Open("file://" + dir); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("got %v", err)
	}
}

func TestCheckURL(t *testing.T) {
	for _, url := range []string{"", "/folder", "file://", "file:///", "file://host/folder", "file://./folder", "file:///folder?create_dir=1", "file:///folder#x", "file:folder", "s3://bucket", "mem://", "\x00"} {
		if err := blobstore.CheckURL(url); err == nil {
			t.Errorf("%q was accepted", url)
		}
	}
	if err := blobstore.CheckURL("file:///var/lib/cofferdam/files"); err != nil {
		t.Error(err)
	}
}
