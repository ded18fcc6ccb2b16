package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/pkg/waittest"
)

// patience bounds a wait for something that must come. It is no measure of
// anything: a test that needs it all has failed.
const patience = time.Minute

// heir makes the test binary a process that inherits a listener.
const heir = "service-under-test-inherits"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == heir {
		os.Exit(inherit(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// inherit serves one connection of an inherited listener, and says how many
// sockets what it starts would inherit in turn.
func inherit(addr string) int {
	l, err := Listen(context.Background(), addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := l.Accept()
	if err != nil {
		return 2
	}
	kept := 0
	for fd := 3; fd < 64; fd++ {
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if err == nil && strings.HasPrefix(link, "socket:") && errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			kept++
		}
	}
	if _, err := fmt.Fprintf(c, "inherited, %d go on", kept); err != nil || c.Close() != nil || l.Close() != nil {
		return 3
	}
	return 0
}

// config of a service under test.
type config struct {
	Base
	Name  string
	Count int
}

func (c *config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Name, "some-name", "default", "a name")
	fs.IntVar(&c.Count, "count", 1, "a number")
}

var errName = errors.New("--some-name: not this one")

func (c *config) Validate() error {
	errs := []error{c.Base.Validate()}
	if c.Name == "wrong" {
		errs = append(errs, errName)
	}
	return errors.Join(errs...)
}

// identified are flags of a service that has an identity in files.
func identified(t *testing.T, id string) []string {
	t.Helper()
	domain := identitytest.New(t)
	cert, key, bundle := domain.Source(t, domain.Service(id)).PEM(t)
	dir := t.TempDir()
	args := []string{"--listen", "127.0.0.1:0", "--trust-domain", domain.TrustDomain().Name()}
	for name, content := range map[string][]byte{"svid-file": cert, "svid-key-file": key, "bundle-file": bundle} {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, content, 0o600))
		args = append(args, "--"+name, path)
	}
	return args
}

// hosted is a service that serves until its context ends.
type hosted struct {
	rt     *Runtime
	domain *identitytest.Domain
	log    *logs
	// main, second and admin are addresses of Unix sockets.
	main, second, admin string
	stop                context.CancelFunc
	ended               chan error
}

// host serves h as the service "server" for the service "client".
func host(t *testing.T, drain time.Duration, h http.HandlerFunc, checks ...func(context.Context) error) *hosted {
	t.Helper()
	dir := t.TempDir()
	s := &hosted{
		domain: identitytest.New(t), log: &logs{}, main: filepath.Join(dir, "main.sock"), second: filepath.Join(dir, "second.sock"),
		admin: filepath.Join(dir, "admin.sock"), ended: make(chan error, 1),
	}
	logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "test", Logger: logger})
	must(t, err)
	t.Cleanup(func() { must(t, tel.Shutdown(context.WithoutCancel(t.Context()))) })
	s.rt = &Runtime{
		Logger: logger, Source: s.domain.Source(t, s.domain.Service("server")), TrustDomain: s.domain.TrustDomain(), Telemetry: tel,
		base: &Base{Listen: "unix://" + s.main + ",unix://" + s.second, AdminListen: "unix://" + s.admin, DrainTimeout: drain},
	}
	for i, c := range checks {
		s.rt.AddCheck(fmt.Sprintf("check-%d", i), c)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = cancel
	go func() {
		s.ended <- s.rt.Serve(ctx, h, identity.AllowList{identity.Exactly(s.domain.Service("client"))})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-s.ended:
			s.ended <- err
		case <-time.After(patience):
			t.Error("the service does not end")
		}
	})
	waittest.Until(t, "the service answers", func() bool { return s.probe(t, "/healthz") == "200 ok" })
	return s
}

// probe asks the admin listener; "" is no answer.
func (s *hosted) probe(t *testing.T, path string) string {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialUnix(s.admin)}}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://local"+path, nil)
	must(t, err)
	res, err := hc.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	return fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(body)))
}

// get asks the service as somebody.
func (s *hosted) get(ctx context.Context, t *testing.T, as string) (string, error) {
	t.Helper()
	hc := identity.HTTPClient(s.domain.Source(t, s.domain.Service(as)), s.domain.Service("server"), identity.ClientOptions{Address: "unix://" + s.main})
	defer hc.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://local/", nil)
	must(t, err)
	res, err := hc.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// end waits for the end of Serve.
func (s *hosted) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(patience):
		t.Fatal("the service does not end")
		return nil
	}
}

func dialUnix(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}

// plain serves h over TCP without TLS, with all the bounds of HTTPServer.
func plain(t *testing.T, h http.Handler, change func(*http.Server)) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	serveOn(t, h, l, change)
	return l.Addr().String()
}

// encrypted serves h over mutual TLS, and gives the configuration of a client.
func encrypted(t *testing.T, h http.Handler, change func(*http.Server)) (string, *tls.Config) {
	t.Helper()
	domain := identitytest.New(t)
	server, client := domain.Source(t, domain.Service("server")), domain.Source(t, domain.Service("client"))
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	serveOn(t, h, tls.NewListener(l, identity.ServerTLS(server, identity.AllowList{identity.Exactly(client.ID())})), change)
	return l.Addr().String(), identity.ClientTLS(client, server.ID())
}

func serveOn(t *testing.T, h http.Handler, l net.Listener, change func(*http.Server)) {
	t.Helper()
	s := HTTPServer(h, slog.New(slog.DiscardHandler))
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- ServeListener(ctx, s, l, time.Millisecond) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// logs is a log that several goroutines write.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
