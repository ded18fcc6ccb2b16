package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/waittest"
)

// patience bounds a wait for something that must come.
const patience = 30 * time.Second

// mainFlag makes the test binary the control plane.
const mainFlag = "controlplane-under-test"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mainFlag {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		var cfg Config
		service.Main("controlplane", &cfg, func(ctx context.Context, rt *service.Runtime) error { return Run(ctx, &cfg, rt) })
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built.dir) // a folder of the system's, for things that may stay behind
		os.Exit(code)
	}))
}

// nobody is a user who is not root.
const nobody = 65534

// asNobody has a process run as a user who is not root, if this one is.
func asNobody(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// built is the folder of the launcher; the first test builds it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func launcher(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "controlplane-test-"); built.err != nil { //nolint:usetesting // it serves all tests
			return
		}
		build := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-buildvcs=false", "-o", built.dir+"/", "./internal/sandbox/process/testdata/launcher")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go build: %w\n%s", err, out)
		}
		built.err = errors.Join(err, os.Chmod(built.dir, 0o755))
	})
	must(t, built.err)
	return filepath.Join(built.dir, "launcher")
}

// installed is a control plane that could start: all files, and nobody else. A
// user who is not root can start it as well.
func installed(t *testing.T) map[string]string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cp-") //nolint:usetesting // t.TempDir is too long for the path of a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	in := func(name string) string { return filepath.Join(dir, name) }
	domain := identitytest.New(t)
	cert, key, bundle := domain.Source(t, domain.Service("controlplane")).PEM(t)
	for name, content := range map[string][]byte{
		"svid.pem": cert, "key.pem": key, "bundle.pem": bundle, "ids.key": bytes.Repeat([]byte("k"), 32),
		"agents.json": []byte(`{"agents":[]}`), "jwks.json": []byte(`{"keys":[]}`),
	} {
		must(t, os.WriteFile(in(name), content, 0o600))
	}
	all := right()
	delete(all, "workload-api")
	maps.Copy(all, map[string]string{
		"svid-file": in("svid.pem"), "svid-key-file": in("key.pem"), "bundle-file": in("bundle.pem"),
		"store": in("records.db"), "id-key-file": in("ids.key"), "agents": in("agents.json"), "oidc-jwks": in("jwks.json"),
		"launcher": launcher(t), "worker": launcher(t), "sandbox-sockets": in("svc"), "sandbox-dir": in("w"), "worker-logs": in("logs"),
		"admin-listen": "unix://" + in("admin.sock"), "public-listen": "unix://" + in("public.sock"), "operator-listen": "unix://" + in("operators.sock"),
		"drain-timeout": "2s", "cancel-grace": "1s",
	})
	if os.Geteuid() == 0 {
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody)) //nolint:gosec // nobody else is in it
		}))
	}
	return all
}

// run starts the control plane as a process of its own.
func run(t *testing.T, settings map[string]string, change ...func(*exec.Cmd)) (*exec.Cmd, *output) {
	t.Helper()
	args := []string{mainFlag}
	for name, value := range settings {
		args = append(args, "--"+name+"="+value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	out := &output{}
	// The path of the test binary may be closed to others.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stderr, cmd.Env = out, []string{}
	for _, c := range change {
		c(cmd)
	}
	must(t, cmd.Start())
	return cmd, out
}

// output is what a process says, while it says it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// get asks over a Unix socket and gives the status; 0 is no answer.
func get(t *testing.T, socket, path string) int {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(socket, "unix://"))
	}}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://local"+path, nil)
	must(t, err)
	res, err := hc.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	must(t, res.Body.Close())
	return res.StatusCode
}

// Weak sandboxes are refused unless an operator says otherwise, and each layer
// that is missing is named. Nobody but root can give sandboxes users of their own:
// whoever else starts a control plane lacks that layer on every machine.
func TestWeakIsolationIsRefused(t *testing.T) {
	settings := installed(t)
	cmd, out := run(t, settings, asNobody)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	for _, part := range []string{"uid: ", "Run it as root", "--allow-weak-isolation"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("does not say %q: %s", part, out)
		}
	}
	if get(t, settings["public-listen"], "/api/v1/agents") != 0 {
		t.Error("it answers")
	}

	settings["allow-weak-isolation"] = "true"
	cmd, out = run(t, settings, asNobody)
	waittest.Until(t, "ready", func() bool { return get(t, settings["admin-listen"], "/readyz") == http.StatusOK })
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, out)
	}
	if s := out.String(); !strings.Contains(s, "isolation layers are missing") || !strings.Contains(s, "uid: ") {
		t.Errorf("log: %s", s)
	}
}

// The whole control plane starts, answers probes, refuses who has no token, and
// ends in order.
func TestRun(t *testing.T) {
	settings := installed(t)
	settings["allow-weak-isolation"] = "true"
	cmd, out := run(t, settings)
	waittest.Until(t, "ready", func() bool { return get(t, settings["admin-listen"], "/readyz") == http.StatusOK })
	for _, c := range []struct {
		listener, path string
		want           int
	}{
		{"public-listen", "/api/v1/agents", http.StatusUnauthorized},
		{"operator-listen", "/api/v1/bindings", http.StatusUnauthorized},
		{"admin-listen", "/healthz", http.StatusOK},
		{"admin-listen", "/metrics", http.StatusOK},
		{"public-listen", "/metrics", http.StatusUnauthorized}, // it says nothing of what there is
	} {
		if got := get(t, settings[c.listener], c.path); got != c.want {
			t.Errorf("%s of %s: %d, want %d", c.path, c.listener, got, c.want)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, out)
	}
	if s := out.String(); !strings.Contains(s, "service ended") || strings.Contains(s, "kkkk") {
		t.Errorf("log: %s", s)
	}
}

func TestAListenerThatCannotBeHad(t *testing.T) {
	for _, name := range []string{"public-listen", "operator-listen"} {
		settings := installed(t)
		settings["allow-weak-isolation"] = "true"
		settings[name] = "unix:///nonexistent/x.sock"
		cmd, out := run(t, settings)
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out.String(), "--"+name) {
			t.Errorf("--%s: %v: %s", name, err, out)
		}
	}
}

// stage is a server or driver of orderly that says what happens to it.
type stage struct {
	told, ended time.Duration
	run         func(ctx context.Context) error
}

func (s *stage) at(start time.Time, f func(ctx context.Context) error) {
	s.run = func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { s.told = time.Since(start) })
		err := f(ctx)
		s.ended = time.Since(start)
		return err
	}
}

func wait(d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		t := time.NewTimer(d)
		defer t.Stop()
		<-t.C
		return err
	}
}

var errInjected = errors.New("injected")

func TestOrderly(t *testing.T) {
	const grace = 5 * time.Second
	for name, c := range map[string]struct {
		// server is how the one server behaves, and stop when ctx ends.
		server func(context.Context) error
		stop   time.Duration
		// told is when the drivers must be told to end.
		told time.Duration
		want error
	}{
		"no request is left":            {wait(0, nil), time.Minute, time.Minute, nil},
		"a request ends within grace":   {wait(3*time.Second, nil), time.Minute, time.Minute + 3*time.Second, nil},
		"a request waits for its run":   {wait(9*time.Second, nil), time.Minute, time.Minute + grace, nil},
		"a server fails":                {func(context.Context) error { return errInjected }, time.Hour, 0, errInjected},
		"a server fails while it ends":  {wait(time.Second, errInjected), time.Minute, time.Minute + time.Second, errInjected},
		"it never began, ctx had ended": {wait(0, nil), 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.stop)
				defer cancel()
				var server, other, drive stage
				server.at(start, c.server)
				other.at(start, wait(0, nil))
				drive.at(start, wait(7*time.Second, nil))
				err := orderly(ctx, grace, drive.run, server.run, other.run)
				if !errors.Is(err, c.want) {
					t.Errorf("orderly: %v", err)
				}
				synctest.Wait()
				if drive.told != c.told {
					t.Errorf("the drivers were told after %v, want %v", drive.told, c.told)
				}
				if drive.ended != drive.told+7*time.Second {
					t.Errorf("the drivers ended after %v and were told after %v", drive.ended, drive.told)
				}
				if got := time.Since(start); got != max(server.ended, drive.ended) {
					t.Errorf("orderly returned after %v: server %v, drivers %v", got, server.ended, drive.ended)
				}
			})
		})
	}
}

// What the drivers say at the end is not lost beside what the servers say.
func TestOrderlyJoinsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := orderly(t.Context(), time.Second, wait(0, io.ErrClosedPipe), func(context.Context) error { return errInjected })
		if !errors.Is(err, io.ErrClosedPipe) || !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
	})
}
