package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const maxLockBytes = 32

// Lock keeps a data folder for one stack. The kernel gives it up with the
// process, however that ends.
type Lock struct{ file *os.File }

// Lock takes the folder, or says who has it.
func (d Dir) Lock() (*Lock, error) {
	file, err := os.OpenFile(d.in(nameLock), os.O_CREATE|os.O_RDWR, keyMode)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(d.taken(file, err), file.Close())
	}
	// Only for the message that somebody else gets.
	if err := file.Truncate(0); err == nil {
		_, err = file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("data folder: %w", err), file.Close())
		}
	}
	return &Lock{file}, nil
}

func lock(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) { result = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	return errors.Join(err, result)
}

func (d Dir) taken(file *os.File, cause error) error {
	if !errors.Is(cause, syscall.EWOULDBLOCK) {
		return fmt.Errorf("data folder: lock: %w", cause)
	}
	who := "another process"
	if text, err := io.ReadAll(io.LimitReader(file, maxLockBytes)); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			who = "process " + strconv.Itoa(pid)
		}
	}
	return fmt.Errorf("data folder: %s is in use by %s: stop that one, or name another folder with --data", d.path, who)
}

// Release gives the folder up.
func (l *Lock) Release() error { return l.file.Close() }
