package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	goleak.VerifyTestMain(m)
}

// installed is a control plane that could start: all files, and nobody else.
func installed(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	domain := identitytest.New(t)
	cert, key, bundle := domain.Source(t, domain.Service("controlplane")).PEM(t)
	for name, content := range map[string][]byte{
		"svid.pem": cert, "key.pem": key, "bundle.pem": bundle, "ids.key": bytes.Repeat([]byte("k"), 32),
		"agents.json": []byte(`{"agents":[]}`), "jwks.json": []byte(`{"keys":[]}`),
	} {
		must(t, os.WriteFile(in(name), content, 0o600))
	}
	self, err := os.Executable()
	must(t, err)
	all := right()
	delete(all, "workload-api")
	maps.Copy(all, map[string]string{
		"svid-file": in("svid.pem"), "svid-key-file": in("key.pem"), "bundle-file": in("bundle.pem"),
		"store": in("records.db"), "id-key-file": in("ids.key"), "agents": in("agents.json"), "oidc-jwks": in("jwks.json"),
		"workspaces": in("workspaces"), "worker-logs": in("logs"), "worker": self,
		"admin-listen": "unix://" + in("admin.sock"), "public-listen": "unix://" + in("public.sock"), "operator-listen": "unix://" + in("operators.sock"),
		"drain-timeout": "2s", "cancel-grace": "1s",
	})
	return all
}

// run starts the control plane as a process of its own.
func run(t *testing.T, settings map[string]string) (*exec.Cmd, *output) {
	t.Helper()
	args := []string{mainFlag}
	for name, value := range settings {
		args = append(args, "--"+name+"="+value)
	}
	self, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	out := &output{}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr, cmd.Env = out, []string{}
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

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// layers is what the process provider lacks in this version.
var layers = []string{
	"user namespace", "pid namespace", "mount namespace with a read-only root", "network namespace", "ipc namespace",
	"uts namespace", "no-new-privileges", "seccomp", "Landlock", "cgroup limits",
}

// Weak sandboxes are refused unless an operator says otherwise, and each layer
// that is missing is named.
func TestWeakIsolationIsRefused(t *testing.T) {
	settings := installed(t)
	cmd, out := run(t, settings)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	for _, part := range append(layers, "--allow-weak-isolation") {
		if !strings.Contains(out.String(), part) {
			t.Errorf("does not name %q: %s", part, out)
		}
	}
	if get(t, settings["public-listen"], "/api/v1/agents") != 0 {
		t.Error("it answers")
	}
}

func TestNewProvider(t *testing.T) {
	domain := identitytest.New(t)
	self, err := os.Executable()
	must(t, err)
	for _, allow := range []bool{false, true} {
		dir := t.TempDir()
		var log bytes.Buffer
		rt := &service.Runtime{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Source: domain.Source(t, domain.Service("controlplane")), TrustDomain: domain.TrustDomain(),
		}
		cfg := &Config{
			WorkerPath: self, Workspaces: filepath.Join(dir, "w"), WorkerLogs: filepath.Join(dir, "l"), RegistrarAddress: "https://127.0.0.1:1",
			AllowWeakIsolation: allow,
		}
		for range 2 { // what was refused holds nothing
			p, err := newProvider(t.Context(), cfg, rt)
			said := fmt.Sprint(err)
			if allow {
				must(t, err)
				must(t, p.Close())
				said = log.String()
			} else if err == nil {
				t.Fatal("started without its layers")
			}
			for _, layer := range layers {
				if !strings.Contains(said, layer) {
					t.Errorf("allowed %v: does not name %q: %s", allow, layer, said)
				}
			}
		}
	}
}

// The whole control plane starts, answers probes, refuses who has no token, and
// ends in order.
func TestRun(t *testing.T) {
	settings := installed(t)
	settings["allow-weak-isolation"] = "true"
	cmd, out := run(t, settings)
	eventually(t, "ready", func() bool { return get(t, settings["admin-listen"], "/readyz") == http.StatusOK })
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
	if s := out.String(); !strings.Contains(s, "isolation layers are missing") || !strings.Contains(s, "service ended") || strings.Contains(s, "kkkk") {
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
