// Package logfile keeps what the services of one machine write to their standard
// error: in files of bounded size, with their lines readable for whoever starts
// them.
package logfile

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

const (
	// DefaultMax is the size in bytes at which a file is put aside.
	DefaultMax = 16 << 20
	// maxLine bounds a line that is told of, in bytes; the file gets all of it.
	maxLine = 64 << 10
	// oldSuffix is appended to the name of the one file that is kept besides.
	oldSuffix = ".1"
)

// File is a log file that is put aside when it is full; one older file is kept.
// It is safe for concurrent use.
type File struct {
	path string
	most int64

	mu   sync.Mutex
	file *os.File
	size int64
	lost int64
	tap  func(line []byte)
	part []byte // of a line whose end has not come
}

// Open opens a log file to append to, made with mode 0600. It is put aside at most
// bytes; 0 is DefaultMax.
func Open(path string, most int64) (*File, error) {
	if most <= 0 {
		most = DefaultMax
	}
	f := &File{path: path, most: most}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("%w (%w)", err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Path of the file.
func (f *File) Path() string { return f.path }

// Tap has tap called with each whole line from now on, without its line break and
// with at most 64 KiB of it; nil ends that. The bytes are valid during the call,
// which must not use f.
func (f *File) Tap(tap func(line []byte)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tap, f.part = tap, nil
}

// Write never fails: a disk that is full must not end the service whose log this
// is. What could not be written is counted, and the count is written once that is
// possible again.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(p)) > f.most {
		f.putAside()
	}
	if f.lost > 0 && f.put(fmt.Appendf(nil, "(%d bytes of this log were lost)\n", f.lost)) {
		f.lost = 0
	}
	if !f.put(p) {
		f.lost += int64(len(p))
	}
	f.tell(p)
	return len(p), nil
}

func (f *File) put(p []byte) bool {
	if f.file == nil && f.open() != nil {
		return false
	}
	n, err := f.file.Write(p)
	f.size += int64(n)
	return err == nil
}

// putAside begins a new file. Where that fails, the old one goes on.
func (f *File) putAside() {
	if os.Rename(f.path, f.path+oldSuffix) != nil {
		return
	}
	if f.file != nil {
		_ = f.file.Close() // what it says now is no news
	}
	f.file, f.size = nil, 0
}

// tell gives whole lines to the tap.
func (f *File) tell(p []byte) {
	for f.tap != nil && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		f.part = append(f.part, line[:min(len(line), maxLine-len(f.part))]...)
		if !whole {
			return
		}
		f.tap(f.part)
		f.part, p = f.part[:0], rest
	}
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
