package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func validListen(flag, addr string) error {
	if addr == "" {
		return fmt.Errorf("--%s: required: host:port, unix:///path, or fd://N", flag)
	}
	_, _, err := parseListen(addr)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// parseListen gives the network and address of the three forms; the network
// "fd" has a number as its address.
func parseListen(addr string) (network, address string, err error) {
	if n, ok := strings.CutPrefix(addr, "fd://"); ok {
		if fd, err := strconv.Atoi(n); err != nil || fd < 3 {
			return "", "", fmt.Errorf("%q: fd://N takes the number of an inherited descriptor, 3 or more", addr)
		}
		return "fd", n, nil
	}
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return "", "", fmt.Errorf("%q: unix:// takes an absolute path", addr)
		}
		return "unix", path, nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "", "", fmt.Errorf("%q: %w", addr, err)
	}
	return "tcp", addr, nil
}

// Listen opens a listener at host:port, unix:///path, or fd://N. A Unix socket
// is made with mode 0600, in the place of one that nobody serves any more.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	network, address, err := parseListen(addr)
	if err != nil {
		return nil, err
	}
	switch network {
	case "fd":
		return inherited(address)
	case "unix":
		return listenUnix(ctx, address)
	default:
		var lc net.ListenConfig
		return lc.Listen(ctx, network, address)
	}
}

// listenAll opens a listener at each address, or none.
func listenAll(ctx context.Context, addrs []string) (all []net.Listener, err error) {
	for _, addr := range addrs {
		l, err := Listen(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, l)
	}
	return all, nil
}

func closeAll(all []net.Listener) error {
	var errs []error
	for _, l := range all {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// inherited takes over a descriptor. It is looked at first: one that is not a
// socket belongs to somebody else in this process, and closing it would hurt.
func inherited(number string) (net.Listener, error) {
	fd, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return nil, fmt.Errorf("fd://%d: no socket was inherited under this number", fd)
	}
	syscall.CloseOnExec(fd) // what this process starts must not have it
	f := os.NewFile(uintptr(fd), "listener")
	if f == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	l, err := net.FileListener(f)
	return l, errors.Join(err, f.Close())
}

// listenUnix replaces a socket only where the kernel says that nobody listens at
// it. A server that is too busy to be reached is a server.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("%s: another process serves this socket", path), c.Close())
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, syscall.ECONNREFUSED):
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 { //nolint:gosec // the operator names the socket
			if err := os.Remove(path); err != nil { //nolint:gosec // the same
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%s: cannot tell whether another process serves this socket: %w", path, err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { //nolint:gosec // the operator names the socket
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
