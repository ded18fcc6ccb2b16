package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
)

// loopback gives a listener for a worker to inherit, and its address.
func loopback(ctx context.Context) (*os.File, string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = l.Close() }() // File duplicates it
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, "", errors.New("not a TCP listener")
	}
	f, err := tcp.File()
	return f, "https://" + l.Addr().String(), err
}

// fileDigest is sha256:… of a file.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
