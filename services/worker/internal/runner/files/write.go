//go:build linux

package files

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// Modes of what is made.
const (
	modeFolder   fs.FileMode = 0o755
	modeFile     fs.FileMode = 0o644
	modeProgram  fs.FileMode = 0o755
	modeUnwanted fs.FileMode = 0o600 // until all of a file is there
	modeReadOnly fs.FileMode = 0o444
	modeReadExec fs.FileMode = 0o555
	// modeGuarded: the program's group may add to the folder, and nobody but the
	// runner may move or remove what is the runner's.
	modeGuarded = 0o775 | fs.ModeSticky
)

// File is a file to write.
type File struct {
	// Path is relative to the root, slash-separated and clean.
	Path       string
	Executable bool
	ReadOnly   bool
	// TheirRoot leaves the root itself to the program, as a workspace has to be: tools
	// refuse to work in one that is somebody else's. Whatever stands directly in it the
	// program can move away as a whole; the next Write puts it back.
	TheirRoot bool
}

// Write makes a file of all of content, and the folders above it. It stands there
// whole or not at all, and replaces what had its name: an open file, and another
// name of the same file, keep what they had.
//
// One that is ReadOnly belongs to the runner, and so do the folders above it up to
// the root, and the root unless it is TheirRoot, where they are made or were the
// program's: in a folder of its own the program could move anything away. It may go on
// making files beside. Links among these folders are refused; one that stands directly
// in a root of the program's gives way.
func Write(root *os.Root, o Owner, f File, content io.Reader) error {
	if !Local(f.Path) {
		return runnerproto.Fail(nil, runnerproto.Invalid, "the path is not one of a file below its folder")
	}
	if f.ReadOnly {
		return failed(writeGuarded(root, o, f, content), "the read-only file")
	}
	return failed(o.as(func() error {
		if err := root.MkdirAll(path.Dir(f.Path), modeFolder); err != nil {
			return err
		}
		return place(root, f.Path, mode(f), content)
	}), "the file")
}

// Local reports that a path is relative, clean, below its root and within bounds.
func Local(p string) bool {
	return filepath.IsLocal(p) && path.Clean(p) == p && p != "." &&
		len(p) <= runnerproto.MaxPath && depth(p) <= runnerproto.MaxDepth && !strings.Contains(p, "\x00")
}

func depth(p string) int { return strings.Count(p, "/") + 1 }

// temporary is a name that nobody else gives.
func temporary() string { return ".cofferdam-" + rand.Text() }

func mode(f File) fs.FileMode {
	switch {
	case f.ReadOnly && f.Executable:
		return modeReadExec
	case f.ReadOnly:
		return modeReadOnly
	case f.Executable:
		return modeProgram
	default:
		return modeFile
	}
}

// place writes a file under another name, and moves it to its own.
func place(root *os.Root, name string, m fs.FileMode, content io.Reader) (err error) {
	temp := path.Join(path.Dir(name), temporary())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeUnwanted)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temp) // the cause of err says more
		}
	}()
	_, err = io.Copy(f, &bounded{r: content, left: runnerproto.MaxFile})
	err = errors.Join(err, f.Chmod(m), f.Close())
	if err != nil {
		return err
	}
	return root.Rename(temp, name)
}

// writeGuarded goes down from the root, folder by folder. Once a folder is
// guarded, nothing of the runner's can be moved out of it; a folder of the
// program's can until it is guarded itself, which is looked at afterwards.
func writeGuarded(root *os.Root, o Owner, f File, content io.Reader) error {
	at, err := root.OpenRoot(".")
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	theirs := f.TheirRoot
	if !theirs {
		if err := guard(at, o); err != nil {
			return err
		}
	}
	dir, name := path.Split(f.Path)
	for step := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		if step == "" {
			break
		}
		if theirs {
			if err := makeWay(at, step); err != nil {
				return err
			}
			theirs = false
		}
		below, err := descend(at, o, step)
		if err != nil {
			return err
		}
		_ = at.Close() // a folder that was only looked into
		at = below
	}
	return place(at, name, mode(f), content)
}

// makeWay removes what has the name of a folder and is none.
func makeWay(at *os.Root, step string) error {
	info, err := at.Lstat(step)
	if err != nil || info.IsDir() {
		return nil //nolint:nilerr // what cannot be looked at cannot be opened either, which says why
	}
	return at.Remove(step)
}

// descend opens a folder, made if it has to be, and guards it.
func descend(at *os.Root, o Owner, step string) (*os.Root, error) {
	if err := at.Mkdir(step, modeFolder); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	below, err := at.OpenRoot(step)
	if err != nil {
		return nil, err
	}
	err = guard(below, o)
	if err == nil {
		err = same(at, step, below)
	}
	if err != nil {
		_ = below.Close()
		return nil, err
	}
	return below, nil
}

// same fails unless the folder stands under its name: no link does, and none that
// was moved away meanwhile.
func same(at *os.Root, step string, below *os.Root) error {
	named, err := at.Lstat(step)
	if err != nil {
		return err
	}
	opened, err := below.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(named, opened) {
		return runnerproto.Fail(nil, runnerproto.Denied, "a folder above the read-only file is a link")
	}
	return nil
}

// guard takes a folder from the program.
func guard(root *os.Root, o Owner) error {
	if !o.Apart {
		return nil
	}
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Chown(os.Geteuid(), o.GID); err != nil {
		return err
	}
	return f.Chmod(modeGuarded)
}

// bounded fails where there is more than left.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, runnerproto.Fail(nil, runnerproto.TooLarge, "more bytes than a world takes")
	}
	return n, err
}
