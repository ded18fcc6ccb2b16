package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	patience = time.Minute
	// upHelper is the name under which the test binary runs a stack of its own.
	upHelper = "stack-test-up"
	diary    = "diary"
)

// Under the name of a service the test binary is a stand-in for it: the stack
// starts programs that it knows by their names. The OpenFGA server is the real
// one.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch { // without os.Exit: the race detector would take a second for it
	case slices.Contains(append(services(), sandboxHost), name):
		syscall.Exit(fake(name, filepath.Dir(os.Args[0])))
	case name == upHelper:
		syscall.Exit(runHelper(os.Args[1], os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// fake answers on the listeners of a service until SIGTERM. It notes its life in
// the diary beside its program.
func fake(name, dir string) int {
	mode, _ := os.ReadFile(filepath.Join(dir, name+".mode"))
	switch string(mode) {
	case "refuse":
		fmt.Fprintln(os.Stderr, `{"level":"WARN","msg":"unseen"}`)
		fmt.Fprintln(os.Stderr, `{"level":"ERROR","msg":"service failed","error":"layers are missing: seccomp"}`)
		return 1
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "warn":
		fmt.Fprintln(os.Stderr, `{"level":"WARN","msg":"readiness check failed","check":"x"}`)
		fmt.Fprintln(os.Stderr, `{"level":"WARN","msg":"weak","missing":"seccomp"}`)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	if string(mode) == "stubborn" {
		ctx = context.Background()
	}
	defer stop()
	note(dir, "start", name)
	if n := len(os.Environ()); n > 0 {
		note(dir, "environment", name)
	}
	for fd := firstDescriptor + adminListener; ; fd++ {
		l, err := net.FileListener(os.NewFile(uintptr(fd), "listener"))
		if err != nil {
			break // it was the last
		}
		status := http.StatusUnauthorized
		if fd == firstDescriptor+adminListener {
			status = http.StatusOK
		}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Pid", strconv.Itoa(os.Getpid()))
			w.WriteHeader(status)
		})}
		go func() { _ = server.Serve(l) }()
	}
	select {
	case <-ctx.Done():
		note(dir, "stop", name)
	case <-time.After(10 * time.Minute): // a test that fails may forget it
	}
	return 0
}

func note(dir, what, name string) {
	f, err := os.OpenFile(filepath.Join(dir, diary), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, _ = fmt.Fprintln(f, what, name, os.Getpid())
		_ = f.Close()
	}
}

// runHelper runs a stack and says on stdout when it is up.
func runHelper(bin, data string) int {
	cfg := Config{BinDir: bin, DataDir: data, Listen: anyPort, Progress: os.Stderr}
	err := Run(context.Background(), cfg, func(ctx context.Context, _ *Stack) error {
		fmt.Println("up")
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// bench is a folder with programs, and an empty data folder.
type bench struct {
	bin, data string
	progress  strings.Builder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{bin: t.TempDir(), data: filepath.Join(t.TempDir(), "d")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(programs(), upHelper) {
		target := self
		if name == openFGAProgram {
			target = realProgram(t, name)
		}
		if err := os.Symlink(target, filepath.Join(b.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// realProgram finds one of the programs that `make build` puts into ./bin, or into
// COFFERDAM_BIN_DIR. Without it this test can show nothing: on a build machine
// (CI=true) that is a failure.
func realProgram(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("COFFERDAM_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		say := t.Skipf
		if os.Getenv("CI") == "true" {
			say = t.Fatalf
		}
		say("NOT TESTED: %v; run `make build` first", err)
	}
	return path
}

func (b *bench) mode(t *testing.T, name, mode string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.bin, name+".mode"), []byte(mode), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs a stack of the bench.
func (b *bench) run(t *testing.T, body func(context.Context, *Stack) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return Run(ctx, Config{BinDir: b.bin, DataDir: b.data, Listen: anyPort, Progress: &b.progress}, body)
}

// entry is a line of the diary.
type entry struct {
	what, name string
	pid        int
}

func (b *bench) diary(t *testing.T) []entry {
	t.Helper()
	f, err := os.Open(filepath.Join(b.bin, diary))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []entry
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e entry
		if _, err := fmt.Sscan(lines.Text(), &e.what, &e.name, &e.pid); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// names are the names of what happened, in order.
func names(diary []entry, what string) []string {
	var out []string
	for _, e := range diary {
		if e.what == what {
			out = append(out, e.name)
		}
	}
	return out
}

// alive tells which of the processes in the diary are still there.
func alive(diary []entry) []entry {
	return slices.DeleteFunc(slices.Clone(diary), func(e entry) bool {
		return e.what != "start" || syscall.Kill(e.pid, 0) != nil || zombie(e.pid)
	})
}

// zombie tells a process that has ended and was not reaped: whoever adopts
// orphans here may be slow.
func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// servedBy is the process that answers a URL.
func servedBy(ctx context.Context, t *testing.T, url string) int {
	t.Helper()
	return askedOf(ctx, t, newProber().client, url)
}

// socketServedBy is the process that answers at a socket.
func socketServedBy(ctx context.Context, t *testing.T, path string) int {
	t.Helper()
	return askedOf(ctx, t, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}, "http://local")
}

func askedOf(ctx context.Context, t *testing.T, client *http.Client, url string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(res.Header.Get("Pid"))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
