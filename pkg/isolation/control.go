//go:build linux

package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFDs is how many descriptors the kernel carries with one message.
const maxFDs = 253

// assignment is what the caller tells the launcher of a world, once the world was placed.
type assignment struct {
	Spec Spec `json:"spec"`
	// Without is that of the whole sandbox.
	Without []Layer `json:"without"`
	IDs     ids     `json:"ids"`
	// Extra is how many descriptors after the standard streams are the program's.
	Extra int `json:"extra"`
	// Stdin says that one more follows them, which becomes the standard input.
	Stdin bool `json:"stdin,omitempty"`
	// Trees says that the message carries the sources of all mounts of both worlds, in order. Where the caller may not
	// open them as such the launcher has to, by path.
	Trees bool `json:"trees"`
}

// report is what a launcher tells the caller.
type report struct {
	// Hello asks for the assignment of a world.
	Hello World `json:"hello,omitempty"`
	// Ready asks whether the caller is still there.
	Ready bool `json:"ready,omitempty"`
	// Failed ends the start.
	Failed *SetupError `json:"failed,omitempty"`
}

// channel is one end of the control socket: whole messages, in order, with descriptors. It closes by itself when a
// launcher becomes a program, which is how the caller learns of it.
type channel struct {
	file *os.File
	conn syscall.RawConn
}

// newChannel takes over a descriptor.
func newChannel(fd int, name string) (*channel, error) {
	f := os.NewFile(uintptr(fd), name)
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &channel{file: f, conn: conn}, nil
}

// socketpair makes both ends. Ours can have deadlines and hears who sent a message; theirs is inherited.
func socketpair() (ours *channel, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "control")
	err = errors.Join(unix.SetNonblock(fds[0], true), unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	if err == nil {
		ours, err = newChannel(fds[0], "control")
	}
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

func (c *channel) deadline(d time.Duration) error { return c.file.SetDeadline(time.Now().Add(d)) }

func (c *channel) close() error { return c.file.Close() }

// send sends one message, and duplicates of descriptors with it.
func (c *channel) send(message any, fds ...int) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > maxMessage || len(fds) > maxFDs {
		return fmt.Errorf("a message of %d bytes and %d descriptors: at most %d and %d", len(b), len(fds), maxMessage, maxFDs)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var sent error
	err = c.conn.Write(func(fd uintptr) bool {
		sent = retried(func() error { return unix.Sendmsg(int(fd), b, rights, nil, unix.MSG_NOSIGNAL) })
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}

// receive takes one message. pid is its sender's as this process sees it, where that was asked for; io.EOF says that
// nobody holds the other end.
func (c *channel) receive(message any) (fds []int, pid int, err error) {
	b := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*maxFDs)+unix.CmsgSpace(unix.SizeofUcred))
	var n, oobn, flags int
	var received error
	err = c.conn.Read(func(fd uintptr) bool {
		received = retried(func() (err error) {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
			return err
		})
		return !errors.Is(received, unix.EAGAIN)
	})
	switch err := errors.Join(err, received); {
	case errors.Is(err, unix.ECONNRESET): // the other end was closed with something unread
		return nil, 0, io.EOF
	case err != nil:
		return nil, 0, err
	case n == 0:
		return nil, 0, io.EOF
	}
	fds, pid, err = ancillary(oob[:oobn])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("control message cut")
	}
	if err == nil {
		err = json.Unmarshal(b[:n], message)
	}
	if err != nil {
		closeAll(fds)
		return nil, 0, err
	}
	return fds, pid, nil
}

// ancillary reads descriptors and the sender.
func ancillary(oob []byte) (fds []int, pid int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range messages {
		switch m.Header.Type {
		case unix.SCM_RIGHTS:
			got, err := unix.ParseUnixRights(&m)
			if err != nil {
				return fds, 0, err
			}
			fds = append(fds, got...)
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&m)
			if err != nil {
				return fds, 0, err
			}
			pid = int(cred.Pid)
		}
	}
	return fds, pid, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func retried(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
