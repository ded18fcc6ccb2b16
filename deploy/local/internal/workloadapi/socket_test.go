package workloadapi

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestDeregisteredIdentityIsGone(t *testing.T) {
	s := newServer(t, nil)
	path, other := register(t, s, sandbox), register(t, s, broker)
	conn := rawConn(t, path)
	stream, err := workload.NewSpiffeWorkloadAPIClient(conn).FetchX509SVID(withHeader(t, "true"), &workload.X509SVIDRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}

	s.Deregister(sandbox)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path is still there: %v", err)
	}
	var dialer net.Dialer
	if c, err := dialer.DialContext(bounded(t), "unix", path); err == nil {
		_ = c.Close()
		t.Error("something answers on the socket")
	}
	// Canceled would make go-spiffe stop watching for good, also if the identity comes back.
	if response, err := stream.Recv(); err == nil || status.Code(err) == codes.Canceled {
		t.Errorf("the stream goes on with %v, %v", response, err)
	}
	if _, err := s.view(path); status.Code(err) != codes.PermissionDenied {
		t.Errorf("view: %v", err)
	}
	if _, err := dial(t, other).FetchX509SVID(bounded(t)); err != nil {
		t.Errorf("another identity: %v", err)
	}
	s.Deregister(sandbox)

	if again := register(t, s, sandbox); again != path {
		t.Errorf("registered again at %s, before at %s", again, path)
	}
	if _, err := dial(t, path).FetchX509SVID(bounded(t)); err != nil {
		t.Errorf("registered again: %v", err)
	}
}

func TestRegisterRefuses(t *testing.T) {
	s := newServer(t, nil)
	register(t, s, sandbox)
	for name, id := range map[string]spiffeid.ID{
		"zero":                 {},
		"another trust domain": spiffeid.RequireFromString("spiffe://foreign.test/sandbox/i-1"),
		"the trust domain":     td.ID(),
		"registered already":   sandbox,
	} {
		if path, err := s.Register(id); err == nil {
			t.Errorf("%s: registered at %s", name, path)
		}
	}
	s.Close()
	if _, err := s.Register(broker); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseClosesEverything(t *testing.T) {
	s := newServer(t, nil)
	paths := []string{register(t, s, sandbox), register(t, s, broker)}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	s.Close()
}

func TestRequestsNeedTheSecurityHeader(t *testing.T) {
	s := newServer(t, nil)
	client := workload.NewSpiffeWorkloadAPIClient(rawConn(t, register(t, s, sandbox)))
	none := bounded(t)
	twice := metadata.NewOutgoingContext(bounded(t), metadata.Pairs(securityHeader, "true", securityHeader, "true"))
	for name, ctx := range map[string]context.Context{
		"none": none, "false": withHeader(t, "false"), "True": withHeader(t, "True"), "empty": withHeader(t, ""), "twice": twice,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.FetchJWTSVID(ctx, &workload.JWTSVIDRequest{Audience: []string{"a"}})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("unary: %v, want InvalidArgument", err)
			}
			stream, err := client.FetchX509SVID(ctx, &workload.X509SVIDRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("stream: %v, want InvalidArgument", err)
			}
		})
	}
	if _, err := client.FetchJWTSVID(withHeader(t, "true"), &workload.JWTSVIDRequest{Audience: []string{"a"}}); err != nil {
		t.Errorf("with the header: %v", err)
	}
}

func TestOtherUsersAreRefused(t *testing.T) {
	s := newServer(t, nil)
	s.uid++ // as if this process belonged to somebody else
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if svid, err := dial(t, register(t, s, sandbox)).FetchX509SVID(ctx); err == nil {
		t.Errorf("issued %q", svid.ID)
	}
	// The socket is alive, and only refuses.
	s.mu.Lock()
	s.uid--
	s.mu.Unlock()
	if _, err := dial(t, register(t, s, broker)).FetchX509SVID(bounded(t)); err != nil {
		t.Errorf("a user in the list: %v", err)
	}
}

// A sandbox runs as another user: the socket is that one's alone.
func TestSocketsBelongToOneUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can make a socket of another user's")
	}
	s := newServer(t, nil)
	path, err := s.RegisterFor(sandbox, 4242)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 4242 || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %+v", info.Mode(), info.Sys())
	}
	// Root can connect to it, and is told nothing: it is not the user.
	if _, err := dial(t, path).FetchX509SVID(bounded(t)); err == nil {
		t.Error("somebody else was told the identity")
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "id")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(c *Config) { c.Dir = dir })
	if info, err := os.Stat(register(t, s, sandbox)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
}

// The keys of the authorities and of the SVIDs are in memory, and nowhere else.
func TestDirectoryHoldsOnlySockets(t *testing.T) {
	s := newServer(t, nil)
	register(t, s, sandbox)
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			t.Errorf("%s is no socket", e.Name())
		}
		if strings.Contains(e.Name(), "i-1") {
			t.Errorf("%s names the identity", e.Name())
		}
	}
}

func TestDirectory(t *testing.T) {
	t.Run("left over", func(t *testing.T) {
		dir := t.TempDir()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName(sandbox)), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		file := filepath.Join(dir, "a.sock")
		if err := errors.Join(l.Close(), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s := newServer(t, func(c *Config) { c.Dir = dir })
		if _, err := dial(t, register(t, s, sandbox)).FetchX509SVID(bounded(t)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("a file that is no socket was removed: %v", err)
		}
	})
	t.Run("length", func(t *testing.T) {
		base := t.TempDir()
		fits := filepath.Join(base, strings.Repeat("d", 85-len(base)-1))
		s := newServer(t, func(c *Config) { c.Dir = fits })
		if path := register(t, s, sandbox); len(path) != maxSocketPath {
			t.Errorf("the path is %d bytes long", len(path))
		}
		_, err := New(Config{TrustDomain: td, Dir: fits + "d"})
		if err == nil || !strings.Contains(err.Error(), "data directory") || !strings.Contains(err.Error(), "1 bytes shorter") {
			t.Errorf("one more: %v", err)
		}
	})
	t.Run("not a directory", func(t *testing.T) {
		base := t.TempDir()
		file, link := filepath.Join(base, "file"), filepath.Join(base, "link")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(base, link)); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{file, link} {
			if _, err := New(Config{TrustDomain: td, Dir: dir}); err == nil {
				t.Errorf("%s was taken", dir)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	good := Config{TrustDomain: td, Dir: "d"}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"defaults":           {func(*Config) {}, true},
		"long-lived SVIDs":   {func(c *Config) { c.X509TTL = 100 * time.Hour }, true},
		"four lifetimes":     {func(c *Config) { c.X509TTL, c.CATTL = time.Hour, 4*time.Hour }, true},
		"no trust domain":    {func(c *Config) { c.TrustDomain = spiffeid.TrustDomain{} }, false},
		"no directory":       {func(c *Config) { c.Dir = "" }, false},
		"short authority":    {func(c *Config) { c.X509TTL, c.CATTL = time.Hour, 4*time.Hour-time.Second }, false},
		"short SVID":         {func(c *Config) { c.X509TTL = time.Second - 1 }, false},
		"negative lifetime":  {func(c *Config) { c.JWTTTL = -time.Hour }, false},
		"negative authority": {func(c *Config) { c.CATTL = -time.Hour }, false},
	} {
		c := good
		tc.change(&c)
		if _, err := c.withDefaults(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// rawConn returns a gRPC connection that sends no header by itself.
func rawConn(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func withHeader(t *testing.T, value string) context.Context {
	t.Helper()
	return metadata.NewOutgoingContext(bounded(t), metadata.Pairs(securityHeader, value))
}
