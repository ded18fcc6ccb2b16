package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// bindPatience is how long a port may stay taken: by what is left of a stack
	// that was killed a moment ago.
	bindPatience = 2 * time.Second
	bindAgain    = 50 * time.Millisecond
)

// listener is a socket that is open for as long as the stack is, and that each
// life of a service inherits.
type listener struct {
	file *os.File
	addr string // host:port, or the path of a socket
}

// bindSocket opens a listener that whoever can reach its path may connect to: the
// users of sandboxes are strangers on the host. The folder that it stands in is
// closed to them, and mutual TLS decides who is heard.
func bindSocket(ctx context.Context, path string) (listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return listener{}, err
	}
	socket, ok := l.(*net.UnixListener)
	if !ok {
		return listener{}, errors.Join(fmt.Errorf("%T is not a Unix listener", l), l.Close())
	}
	socket.SetUnlinkOnClose(false)
	file, err := socket.File()                                                     // a duplicate: this process never accepts
	if err = errors.Join(err, os.Chmod(path, 0o666), socket.Close()); err != nil { //nolint:gosec // see above
		return listener{}, err
	}
	return listener{file: file, addr: path}, nil
}

// bind opens a listener on a loopback address.
func bind(ctx context.Context, address string) (listener, error) {
	l, err := listen(ctx, address)
	if err != nil {
		return listener{}, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return listener{}, errors.Join(fmt.Errorf("%T is not a TCP listener", l), l.Close())
	}
	file, err := tcp.File() // a duplicate: this process never accepts
	if err = errors.Join(err, l.Close()); err != nil {
		return listener{}, err
	}
	return listener{file: file, addr: l.Addr().String()}, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, bindPatience)
	defer cancel()
	for {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: end what listens there, or choose another address with --listen", err)
		case <-time.After(bindAgain):
		}
	}
}

func (l listener) http() string  { return "http://" + l.addr }
func (l listener) https() string { return "https://" + l.addr }
