//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dial says what a listener says. It waits for one that is not there yet where
// a third argument says so.
func dial(args []string) (string, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	end := time.Now().Add(patience)
	for {
		c, err := dialer.DialContext(context.Background(), args[0], args[1])
		if err == nil {
			defer c.Close()
			b := make([]byte, 64)
			n, err := c.Read(b)
			return string(b[:n]), err
		}
		absent := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
		if len(args) < 3 || !absent || time.Now().After(end) {
			return "", err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// serve answers everybody who connects with its third argument.
func serve(args []string) (string, error) {
	syscall.Umask(0)
	l, err := listen(args[0], args[1])
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		_, _ = c.Write([]byte(args[2]))
		_ = c.Close()
	}
}

// abstract looks for an abstract Unix socket.
func abstract(args []string) (string, error) { return dial([]string{"unix", "@" + args[0], "wait"}) }

// family makes a socket of an address family, a type and a protocol.
func family(args []string) (string, error) {
	fd, err := unix.Socket(number(args[0]), number(args[1]), number(args[2]))
	if err != nil {
		return "", err
	}
	return fmt.Sprint(args), unix.Close(fd)
}

// hostname reaches the name that it is told of.
func hostname(args []string) (string, error) {
	name, err := os.Hostname()
	if err == nil && name != args[0] {
		err = fmt.Errorf("the name is %s", name)
	}
	return name, err
}

// sharedMemory reads a System V segment.
func sharedMemory(args []string) (string, error) {
	id, err := unix.SysvShmGet(number(args[0]), 0, 0)
	if err != nil {
		return "", err
	}
	b, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
	if err != nil {
		return "", err
	}
	got := string(b[:8])
	return got, unix.SysvShmDetach(b)
}
