package workloadapi

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

const (
	maxSocketPath = 107 // bytes: sun_path without its final zero
	nameBytes     = 10  // of the digest in a socket's name; 16 characters
	socketSuffix  = ".sock"
	maxConns      = 16 // per identity; more wait

	dirMode    = 0o700
	socketMode = 0o600
	openMode   = 0o666
)

// prepareDir makes the directory of the sockets, or cleans up what a server before this one left in it, and returns its
// absolute path.
func prepareDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("workloadapi: %w", err)
	}
	if longest := maxSocketPath - len("/") - base32.StdEncoding.EncodedLen(nameBytes) - len(socketSuffix); len(abs) > longest {
		return "", fmt.Errorf("workloadapi: %s is %d bytes long, and the path of a Unix socket in it may be at most %d: use a data directory with a path at least %d bytes shorter",
			abs, len(abs), maxSocketPath, len(abs)-longest)
	}
	if err := os.MkdirAll(abs, dirMode); err != nil {
		return "", fmt.Errorf("workloadapi: %w", err)
	}
	info, err := os.Lstat(abs)
	if err != nil {
		return "", fmt.Errorf("workloadapi: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("workloadapi: %s is not a directory of this user", abs)
	}
	if err := os.Chmod(abs, dirMode); err != nil {
		return "", fmt.Errorf("workloadapi: %w", err)
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return "", fmt.Errorf("workloadapi: %w", err)
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSocket && strings.HasSuffix(e.Name(), socketSuffix) {
			if err := os.Remove(filepath.Join(abs, e.Name())); err != nil {
				return "", fmt.Errorf("workloadapi: %w", err)
			}
		}
	}
	return abs, nil
}

// socketName is short, whatever the ID, and says nothing about it.
func socketName(id spiffeid.ID) string {
	digest := sha256.Sum256([]byte(id.String()))
	return strings.ToLower(base32.StdEncoding.EncodeToString(digest[:nameBytes])) + socketSuffix
}

// listen opens the socket of an identity for one user, who owns it.
func listen(path string, uid uint32) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("workloadapi: %w", err)
	}
	err = os.Chmod(path, socketMode)
	if err == nil && int(uid) != os.Geteuid() {
		err = os.Lchown(path, int(uid), -1)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("workloadapi: %w", err), l.Close())
	}
	return netutil.LimitListener(&peerListener{UnixListener: l, uid: uid}, maxConns), nil
}

// listenAll opens the socket at a path for every user that can reach it, in the place of one that nobody serves any
// more.
func listenAll(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("workloadapi: %s is %d bytes long, and the path of a Unix socket may be at most %d", path, len(path), maxSocketPath)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("workloadapi: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("workloadapi: %w", err)
	}
	if err := os.Chmod(path, openMode); err != nil {
		return nil, errors.Join(fmt.Errorf("workloadapi: %w", err), l.Close())
	}
	return netutil.LimitListener(l, maxConns), nil
}

// peerListener accepts only connections of one user, as the kernel knows them.
type peerListener struct {
	*net.UnixListener

	uid uint32
}

// Accept implements net.Listener. A caller that is refused sees its connection close.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(conn)
		if err == nil && uid == l.uid {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// peerUID is the user that the other end of a connection belonged to when it connected.
func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
