package process

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const uid = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

func TestOneFolderOneControlPlane(t *testing.T) {
	w := start(t, "patient")
	cfg := config(w.dir, programs(t), "patient", &identities{})
	if p, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another control plane") {
		if p != nil {
			_ = p.Close()
		}
		t.Fatalf("two use one folder: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Only what is certainly left of a sandbox is removed: an operator can name any
// folder.
func TestOnlyWhatIsOursIsRemoved(t *testing.T) {
	dir := shortDir(t)
	if err := os.RemoveAll(filepath.Join(dir, "svc")); err != nil {
		t.Fatal(err)
	}
	keep := []string{
		"notes", "workspace-", "workspace-abc", workspacePrefix + strings.ToLower(uid), workspacePrefix + uid + "A", "x" + workspacePrefix + uid,
		"x.sock", strings.ToUpper(socketName(uid)), "a" + socketName(uid), socketName(uid) + "1",
	}
	for _, name := range append(keep, workspacePrefix+uid, socketName(uid)) {
		if err := os.MkdirAll(filepath.Join(dir, name, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.close() }()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(keep)
	slices.Sort(got)
	if !slices.Equal(got, keep) {
		t.Errorf("left %q, want %q", got, keep)
	}
}

// A sandbox can leave folders that even their owner cannot remove anything from.
func TestReadOnlyFoldersAreRemoved(t *testing.T) {
	dir := shortDir(t)
	w, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.close() }()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o500); err != nil {
		t.Fatal(err)
	}
	asNobody(t, dir, func() {
		path, err := w.workspace(uid, os.Geteuid())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"a/b/c", "d/e"} {
			if err := os.MkdirAll(filepath.Join(path, p), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, p, "f"), nil, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(outside, filepath.Join(path, "a/out")); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"a/b/c", "a/b", "d/e", "d", "."} {
			mode := os.FileMode(0o500)
			if len(p)%2 == 1 { // cannot even be listed
				mode = 0
			}
			if err := os.Chmod(filepath.Join(path, p), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(path); err == nil {
			t.Fatal("this could be removed without any trouble")
		}
		if err := w.remove(uid); err != nil {
			t.Errorf("remove: %v", err)
		}
		if err := w.remove(uid); err != nil {
			t.Errorf("remove of nothing: %v", err)
		}
	})
	if _, err := os.Lstat(filepath.Join(dir, workspacePrefix+uid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("workspace: %v", err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("a folder outside was changed: %v, %v", info, err)
	}
}

// asNobody calls f with the rights of the owner of dir, who is not root.
func asNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	// The way to the folder is root's alone.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // it is the thread that has the rights
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := unix.SetfsuidRetUid(0); err != nil {
			t.Error(err)
		}
	}()
	f()
}

func TestLogsAreBounded(t *testing.T) {
	w := start(t, "noisy")
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "the last line")
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(w.dir, "logs"))
	if err != nil || len(entries) != 2 {
		t.Fatalf("logs: %v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Size() > maxLogBytes || info.Mode().Perm() != 0o600 {
			t.Errorf("log %s: %v, %v", e.Name(), info, err)
		}
	}
}

func TestTheOldestLogsGo(t *testing.T) {
	dir := t.TempDir()
	at := time.Now()
	for i, name := range []string{"worker-A.log", "worker-LIVE.log", "worker-B.log", "worker-B.log.1", "worker-C.log", "other.log"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := pruneLogs(dir, 2, func(uid string) bool { return uid == "LIVE" }); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{"other.log", "worker-B.log.1", "worker-C.log", "worker-LIVE.log"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
}

// A disk that is full stops no worker.
func TestALogThatCannotBeWrittenStopsNobody(t *testing.T) {
	dir := t.TempDir()
	l, err := openLog(dir, uid)
	if err != nil {
		t.Fatal(err)
	}
	wl, ok := l.(*workerLog)
	if !ok {
		t.Fatalf("%T", l)
	}
	if err := wl.file.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n, err := l.Write(make([]byte, maxLogBytes)); n != maxLogBytes || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
	}
}
