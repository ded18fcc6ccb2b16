package process

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxLogBytes is the size at which a worker's log is put aside; one older file
	// is kept besides.
	maxLogBytes = 4 << 20
	// keptLogs is how many logs of instances that have ended are kept.
	keptLogs = 128
	// logPrefix begins the names of logs.
	logPrefix = "worker-"
)

// workerLog takes what one worker writes to its standard error. It never fails
// and never grows: what a sandbox writes is as much as the sandbox likes.
type workerLog struct {
	path string
	file *os.File
	size int64
}

func openLog(dir, uid string) (io.WriteCloser, error) {
	l := &workerLog{path: filepath.Join(dir, logPrefix+uid+".log")}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *workerLog) open() (err error) {
	l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	l.size = 0
	return err
}

// Write is called by one goroutine at a time. What cannot be written is lost: a
// full disk is no reason to stop a worker.
func (l *workerLog) Write(b []byte) (int, error) {
	if l.size+int64(len(b)) > maxLogBytes && l.size > 0 {
		l.putAside()
	}
	if l.file == nil {
		return len(b), nil
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	if err != nil {
		return len(b), nil //nolint:nilerr // see above
	}
	return len(b), nil
}

// putAside begins a new file. Where that fails, nothing more is written.
func (l *workerLog) putAside() {
	err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1"))
	l.file = nil
	if err == nil {
		_ = l.open() // file stays nil
	}
}

func (l *workerLog) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// pruneLogs removes the oldest logs but for kept. Those of instances that are not
// gone stay in any case.
func pruneLogs(dir string, kept int, lives func(uid string) bool) error {
	paths, err := filepath.Glob(filepath.Join(dir, logPrefix+"*"))
	if err != nil {
		return err
	}
	type log struct {
		path string
		at   int64
	}
	var logs []log
	for _, path := range paths {
		uid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), logPrefix), ".")
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && !lives(uid) {
			logs = append(logs, log{path, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(logs, func(a, b log) int { return cmp.Compare(a.at, b.at) })
	var errs []error
	for _, l := range logs[:max(0, len(logs)-kept)] {
		if err := os.Remove(l.path); !errors.Is(err, os.ErrNotExist) { // two starts may prune at once
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
