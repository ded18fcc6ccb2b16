//go:build linux

package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// batch is how many names of a folder are held at a time.
const batch = 256

const modeOpened fs.FileMode = 0o700

// Empty removes everything below the root. It takes neither memory nor
// descriptors for what it finds: what lies deep is moved up and removed there, so
// that a tree of any depth and width goes. It ends with ctx.
func Empty(ctx context.Context, root *os.Root) error {
	e := emptier{root: root, prefix: temporary()}
	for {
		left, err := e.pass(ctx)
		if err != nil || left == 0 {
			return err
		}
	}
}

type emptier struct {
	root   *os.Root
	prefix string // of names that nobody else can have given
	moved  uint64
}

// pass removes what stands directly below the root, and moves up what stands
// below that. It says how many names it met.
func (e *emptier) pass(ctx context.Context) (int, error) {
	return each(ctx, e.root, func(d fs.DirEntry) error {
		err := e.root.Remove(d.Name())
		if err == nil || errors.Is(err, fs.ErrNotExist) || !d.IsDir() {
			return ignoreMissing(err)
		}
		if err := e.raise(ctx, d.Name()); err != nil {
			return ignoreMissing(err)
		}
		// What was missed, because the folder changed while it was read, is met again.
		if err := e.root.Remove(d.Name()); !errors.Is(err, unix.ENOTEMPTY) {
			return ignoreMissing(err)
		}
		return nil
	})
}

// raise removes what stands in a folder, and moves its folders up to the root.
func (e *emptier) raise(ctx context.Context, name string) error {
	if err := e.root.Chmod(name, modeOpened); err != nil { // its owner may have closed it to himself
		return err
	}
	dir, err := e.root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	_, err = each(ctx, dir, func(c fs.DirEntry) error {
		err := dir.Remove(c.Name())
		if err == nil || !c.IsDir() {
			return ignoreMissing(err)
		}
		if err := dir.Chmod(c.Name(), modeOpened); err != nil {
			return ignoreMissing(err)
		}
		e.moved++
		return ignoreMissing(e.root.Rename(name+"/"+c.Name(), e.prefix+strconv.FormatUint(e.moved, 10)))
	})
	return err
}

// each calls f with each name of a folder, a batch at a time, and says how many
// there were. Those that f makes may be among them or not.
func each(ctx context.Context, dir *os.Root, f func(fs.DirEntry) error) (n int, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Close() }()
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		names, err := d.ReadDir(batch)
		for _, entry := range names {
			n++
			if err := f(entry); err != nil {
				return n, err
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
