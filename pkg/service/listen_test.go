package service

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenTCP(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	if a, ok := l.Addr().(*net.TCPAddr); !ok || a.Port == 0 || !a.IP.IsLoopback() {
		t.Errorf("listens at %v", l.Addr())
	}
	if second, err := Listen(t.Context(), l.Addr().String()); err == nil {
		_ = second.Close()
		t.Error("two listen at one port")
	}
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := Listen(t.Context(), "unix://"+path)
	must(t, err)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	must(t, l.Close())
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// A socket that a killed process left is replaced.
func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	old, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	must(t, err)
	if u, ok := old.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	must(t, old.Close())
	l, err := Listen(t.Context(), "unix://"+path)
	must(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	must(t, err)
	must(t, c.Close())
}

// One that somebody serves is not, also when that somebody is too busy to accept.
func TestALiveSocketIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	live := filepath.Join(dir, "live.sock")
	l, err := Listen(t.Context(), "unix://"+live)
	must(t, err)
	defer func() { _ = l.Close() }()
	busy := filepath.Join(dir, "busy.sock")
	fd := busySocket(t, busy)
	defer func() { must(t, syscall.Close(fd)) }()
	for _, path := range []string{live, busy} {
		before, err := os.Lstat(path)
		must(t, err)
		if second, err := Listen(t.Context(), "unix://"+path); err == nil || !strings.Contains(err.Error(), "another process serves this socket") {
			t.Errorf("%s: %v", filepath.Base(path), err)
			if err == nil {
				_ = second.Close()
			}
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was replaced: %v", filepath.Base(path), err)
		}
	}
}

// busySocket listens and never accepts, with its queue full.
func busySocket(t *testing.T, path string) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	must(t, syscall.Listen(fd, 0))
	for range 64 {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return fd
		}
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue does not get full")
	return fd
}

// What is no socket is never removed.
func TestAFileIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	if l, err := Listen(t.Context(), "unix://"+path); err == nil {
		_ = l.Close()
		t.Error("it listens")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestListenRefuses(t *testing.T) {
	for _, addr := range []string{
		"", "nonsense", "127.0.0.1", "127.0.0.1:99999", "unix://x.sock", "unix:///nonexistent/x.sock",
		"unix:///" + strings.Repeat("x", 200), "fd://", "fd://0", "fd://2", "fd://-1", "fd://three", "fd://999999",
	} {
		if l, err := Listen(t.Context(), addr); err == nil {
			_ = l.Close()
			t.Errorf("%q was taken", addr)
		}
	}
}

// A number under which there is no socket is somebody else's descriptor: it is
// left open.
func TestADescriptorOfSomebodyElse(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer f.Close()
	number := fmt.Sprintf("fd://%d", f.Fd())
	if l, err := Listen(t.Context(), number); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("%s: %v, %v", number, l, err)
	}
	if _, err := f.WriteString("still open"); err != nil {
		t.Errorf("the file was closed: %v", err)
	}
}

// A listener is inherited by number, and goes no further.
func TestInheritedListener(t *testing.T) {
	parent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = parent.Close() }()
	tcp, ok := parent.(*net.TCPListener)
	if !ok {
		t.Fatalf("%T", parent)
	}
	f, err := tcp.File()
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, heir, "fd://3")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f}, t.Output()
	must(t, cmd.Start())
	must(t, f.Close())
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", parent.Addr().String())
	must(t, err)
	said, err := io.ReadAll(c)
	if err != nil || string(said) != "inherited, 0 go on" {
		t.Errorf("%q, %v", said, err)
	}
	must(t, c.Close())
	must(t, cmd.Wait())
}

func FuzzParseListen(f *testing.F) {
	for _, s := range []string{"127.0.0.1:0", "[::1]:1", ":80", "unix:///run/x", "unix://", "fd://3", "fd://+3", "fd://99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		network, address, err := parseListen(addr)
		if err != nil {
			return
		}
		switch network {
		case "tcp":
			if _, _, err := net.SplitHostPort(address); err != nil {
				t.Errorf("%q: %v", addr, err)
			}
		case "unix":
			if !filepath.IsAbs(address) {
				t.Errorf("%q: %q", addr, address)
			}
		case "fd":
			if strings.Trim(address, "0123456789+") != "" {
				t.Errorf("%q: %q", addr, address)
			}
		default:
			t.Errorf("%q: network %q", addr, network)
		}
	})
}
