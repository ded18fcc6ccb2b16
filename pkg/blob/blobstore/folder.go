package blobstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"cofferdam.dev/pkg/blob"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
	// incoming has what is not whole yet, in the folder itself so that a rename is
	// atomic.
	incoming = "incoming"
	// abandonedAfter is when a file that did not become whole belongs to a process
	// that died. No request lives that long.
	abandonedAfter = 24 * time.Hour
)

// folder keeps blobs as files. It opens nothing by path but its own root: names
// are resolved by [os.Root], which leads out of it through no symbolic link,
// whoever put one there.
type folder struct{ root *os.Root }

// openFolder makes the folder if it is not there; it is for its owner alone (mode
// 0700), and one that others can enter is refused.
func openFolder(dir string) (*folder, error) {
	if err := private(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{root: root}
	if err := f.tidy(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

func private(dir string) error {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o and holds what people sent; run chmod 700 on it", dir, info.Mode().Perm())
	}
	return nil
}

// tidy removes what processes that died were writing.
func (f *folder) tidy() error {
	if err := f.root.MkdirAll(incoming, folderMode); err != nil {
		return err
	}
	entries, err := fs.ReadDir(f.root.FS(), incoming)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < abandonedAfter {
			continue // gone by now, or somebody's
		}
		if err := f.root.Remove(path.Join(incoming, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close implements [Store].
func (f *folder) Close() error { return f.root.Close() }

// Check implements [Store].
func (f *folder) Check(context.Context) error {
	_, err := f.root.Stat(incoming)
	return err
}

// Create implements [blob.Store].
func (f *folder) Create(ctx context.Context, key string) (blob.Writer, error) {
	if err := usable(ctx, key); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	w := &fileWriter{root: f.root, ctx: ctx, key: key, name: path.Join(incoming, rand.Text())}
	var err error
	if w.file, err = f.root.OpenFile(w.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	return w, nil
}

// Open implements [blob.Store].
func (f *folder) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := usable(ctx, key); err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	file, err := f.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(blob.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir(): // a key that is the beginning of another one
		err = blob.ErrNotFound
	case !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	default:
		_, err = file.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open blob: %w", err), file.Close())
	}
	return file, nil
}

// Delete implements [blob.Store].
func (f *folder) Delete(ctx context.Context, key string) error {
	if err := usable(ctx, key); err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	if err := f.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// Each implements [blob.Store].
func (f *folder) Each(ctx context.Context, folder string, tell func(blob.Entry) error) error {
	if err := usable(ctx, folder); err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	err := fs.WalkDir(f.root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone by now, or nothing was ever there
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return tell(blob.Entry{Key: name, Written: info.ModTime()})
	})
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	return nil
}

func usable(ctx context.Context, key string) error {
	if !blob.ValidKey(key) {
		return errors.New("not a key")
	}
	return ctx.Err()
}

// fileWriter writes a file that has its name only once it is whole.
type fileWriter struct {
	root *os.Root
	ctx  context.Context //nolint:containedctx // what ends the writer, as Create says
	key  string
	name string
	file *os.File
}

func (w *fileWriter) Write(p []byte) (int, error) { return w.file.Write(p) }

// Commit makes the content durable before it has its name, and its name before it
// says so.
func (w *fileWriter) Commit() error {
	if err := w.commit(); err != nil {
		return errors.Join(fmt.Errorf("commit blob: %w", err), w.remove())
	}
	return nil
}

func (w *fileWriter) commit() error {
	err := w.file.Sync()
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.ctx.Err()
	}
	if err != nil {
		return err
	}
	dir := path.Dir(w.key)
	if err := w.root.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	if err := w.root.Rename(w.name, w.key); err != nil {
		return err
	}
	for ; ; dir = path.Dir(dir) { // each of the folders may be new
		if err := w.syncFolder(dir); err != nil || dir == "." {
			return err
		}
	}
}

func (w *fileWriter) syncFolder(dir string) error {
	d, err := w.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Abort leaves nothing.
func (w *fileWriter) Abort() error {
	if err := errors.Join(w.file.Close(), w.remove()); err != nil {
		return fmt.Errorf("abort blob: %w", err)
	}
	return nil
}

func (w *fileWriter) remove() error {
	if err := w.root.Remove(w.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
