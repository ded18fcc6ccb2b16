//go:build linux

// Package files makes, archives and removes files in folders that belong to a
// program that is not trusted, and may be running meanwhile.
//
// Every path goes through an os.Root, so that no link leads out. What is made for
// the program is made with the program's own file permissions: the kernel decides
// then, and there is no owner to be changed afterwards, which a swapped folder
// could turn on something else. Only what the program shall not touch is made as
// the runner.
package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// Owner is the program's user and group.
type Owner struct {
	UID, GID int
	// Apart: it is not the user of this process, which may act as both.
	Apart bool
}

// as runs f with the file permissions of the owner, where it is another user. f
// runs on a thread of its own, which ends with it and never does anything else;
// goroutines that f starts would not be on it.
func (o Owner) as(f func() error) error {
	if !o.Apart {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		done <- func() error {
			if err := unix.Setfsgid(o.GID); err != nil {
				return err
			}
			if err := unix.Setfsuid(o.UID); err != nil { // takes the capabilities over files as well
				return err
			}
			// Neither call says whether it did anything.
			if uid, err := unix.SetfsuidRetUid(math.MaxUint32); err != nil || uid != o.UID {
				return runnerproto.Fail(err, runnerproto.Internal, "cannot act as the program's user")
			}
			return f()
		}()
	}()
	return <-done
}

// failed gives an error of the file system a code. what names the thing, in the
// worker's words.
func failed(err error, what string) error {
	var known *runnerproto.Error
	var errno unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return runnerproto.Fail(err, runnerproto.DeadlinePast, what)
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET): // the worker does not want it any more
		return runnerproto.Fail(err, runnerproto.Cancelled, what)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return runnerproto.Fail(err, runnerproto.Limit, "storage")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return runnerproto.Fail(err, runnerproto.Denied, what)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return runnerproto.Fail(err, runnerproto.Invalid, what)
	case !errors.As(err, &errno) && errors.As(err, new(*fs.PathError)): // a path that leads out of its root
		return runnerproto.Fail(err, runnerproto.Invalid, what)
	default:
		return runnerproto.Fail(err, runnerproto.Internal, what)
	}
}

// Prepare gives a folder to the program.
func Prepare(root *os.Root, o Owner, mode fs.FileMode) error {
	if !o.Apart {
		return nil
	}
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Chown(o.UID, o.GID); err != nil {
		return err
	}
	return f.Chmod(mode)
}
