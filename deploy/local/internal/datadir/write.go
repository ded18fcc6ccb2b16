package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write puts a file with mode 0600 in place as a whole: a reader sees the old
// content or the new one, also after a crash.
func Write(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Keep returns the content of the key file at path, which is made of what create
// gives if there is none. A key that others can read is refused.
func Keep(path string, most int64, create func() ([]byte, error)) ([]byte, error) {
	content, err := ReadKey(path, most)
	if !errors.Is(err, fs.ErrNotExist) {
		return content, err
	}
	if content, err = create(); err != nil {
		return nil, err
	}
	return content, Write(path, content)
}

// ReadKey reads a key file of at most so many bytes. One that others can read is
// refused.
func ReadKey(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > most:
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, most)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s can be read by others: run chmod 600 on it", path)
	}
	return io.ReadAll(io.LimitReader(file, most))
}
