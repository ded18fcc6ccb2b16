package blobstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gocloud.dev/blob"
)

// writer writes one blob. Its context, while it is not cancelled, is what makes
// the driver keep it.
type writer struct {
	w      *blob.Writer
	cancel context.CancelFunc
	file   *os.File // the temporary file, with the driver that has one
}

func (w *writer) Write(p []byte) (int, error) { return w.w.Write(p) }

// Commit makes the blob there, on disk before it has its name, and its name on
// disk before it says so.
func (w *writer) Commit() error {
	defer w.cancel()
	if err := w.sync(); err != nil {
		return errors.Join(fmt.Errorf("commit blob: %w", err), w.Abort())
	}
	if err := w.w.Close(); err != nil {
		return fmt.Errorf("commit blob: %w", err)
	}
	if w.file == nil {
		return nil
	}
	// The folder of a binding may be new, and so may the one above it.
	dir := filepath.Dir(w.file.Name())
	for _, d := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if err := syncFolder(d); err != nil {
			return fmt.Errorf("commit blob: %w", err)
		}
	}
	return nil
}

func (w *writer) sync() error {
	if w.file == nil {
		return nil
	}
	return w.file.Sync()
}

// Abort leaves nothing. Closing a writer whose context has ended is how the
// driver is told; the error that it then gives is no failure.
func (w *writer) Abort() error {
	w.cancel()
	if err := w.w.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("abort blob: %w", err)
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
