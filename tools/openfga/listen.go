package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// firstInherited is the first descriptor after the standard streams.
const firstInherited = 3

// descriptor reads fd://N; inherited is false for an address of another form.
func descriptor(address string) (fd int, inherited bool, err error) {
	number, ok := strings.CutPrefix(address, "fd://")
	if !ok {
		return 0, false, nil
	}
	fd, err = strconv.Atoi(number)
	if err != nil || fd < firstInherited {
		return 0, true, fmt.Errorf("--http-listen: %q: fd://N takes the number of an inherited descriptor, %d or more", address, firstInherited)
	}
	return fd, true, nil
}

// listen opens the listener, or takes over the one that a supervisor keeps open
// so that the port stays the same and connections wait while the server is
// started again.
func (c config) listen(ctx context.Context) (net.Listener, error) {
	fd, inherited, err := descriptor(c.HTTPListen)
	if err != nil {
		return nil, err
	}
	if !inherited {
		return new(net.ListenConfig).Listen(ctx, "tcp", c.HTTPListen)
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "listener")
	if file == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	listener, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if err := c.checkReach(listener.Addr().String()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
