package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// disk writes lines to the file. It is of one goroutine.
type disk struct {
	path string
	most int64

	f    *os.File // nil after a failure
	size int64
	torn bool // the file does not end with a whole line
}

// open opens the file for appending and takes it for this process.
func (d *disk) open() error {
	f, err := os.OpenFile(d.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := d.take(f); err != nil {
		return errors.Join(err, f.Close())
	}
	d.f = f
	return nil
}

func (d *disk) take(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("audit: %s: another process writes to it: %w", d.path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("audit: %s: not a file of mode 0600", d.path)
	}
	d.size, d.torn = info.Size(), false
	if d.size > 0 { // a crash may have left half a line
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, d.size-1); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("audit: %w", err)
		}
		d.torn = last[0] != '\n'
	}
	return syncDir(d.path)
}

// write appends lines and waits until they are safe. After a failure the file is
// opened anew: what the kernel still has of it after a failed fsync nobody knows.
func (d *disk) write(lines []byte) (err error) {
	if d.f != nil && !d.current() {
		d.close()
	}
	if d.f == nil {
		if err := d.open(); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("audit: %w", err)
			d.close()
		}
	}()
	if d.size > 0 && d.size+int64(len(lines)) > d.most {
		if err := d.rotate(); err != nil {
			return err
		}
	}
	if d.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := d.f.Write(lines)
	d.size += int64(n)
	if err != nil {
		return err
	}
	d.torn = false
	return d.f.Sync()
}

// current says whether the file is still the one at the path: somebody may have
// put it aside, and records in a file that has no name are lost with the process.
func (d *disk) current() bool {
	open, err := d.f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(d.path)
	return err == nil && os.SameFile(open, named)
}

// rotate puts the file aside and begins a new one.
func (d *disk) rotate() error {
	d.close()
	aside := d.path + "." + time.Now().UTC().Format("20060102T150405.000000000Z")
	if _, err := os.Lstat(aside); err == nil {
		return fmt.Errorf("%s is there already", aside)
	}
	if err := os.Rename(d.path, aside); err != nil {
		return err
	}
	return d.open()
}

func (d *disk) close() {
	if d.f != nil {
		_ = d.f.Close() // what counts was synced
		d.f = nil
	}
}

// syncDir makes names in the folder of a file survive a crash.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}
