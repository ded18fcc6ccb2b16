package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// patience bounds a wait for something that must come. It is no measure of
// anything: a test that needs it all has failed.
const patience = 20 * time.Second

var td = spiffeid.RequireTrustDomainFromString("cofferdam.test")

// helperFlag among the arguments makes the test binary a worker. It is an
// argument and not a variable, because the environment is among the things under
// test.
const helperFlag = "--helper="

// ownerFlag makes the test binary a control plane with one sandbox.
const ownerFlag = "--owner="

func TestMain(m *testing.M) {
	for _, arg := range os.Args {
		if mode, ok := strings.CutPrefix(arg, helperFlag); ok {
			os.Exit(helper(mode))
		}
		if dir, ok := strings.CutPrefix(arg, ownerFlag); ok {
			os.Exit(owner(dir))
		}
	}
	goleak.VerifyTestMain(m)
}

// helper inherits a listener and serves nothing.
func helper(mode string) int {
	switch mode {
	case "exit":
		return 3
	case "patient":
		fmt.Fprintln(os.Stderr, "up")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "ignoring")
	case "noisy":
		line := []byte(strings.Repeat("x", 1023) + "\n")
		for range 3 * maxLogBytes / len(line) {
			if _, err := os.Stderr.Write(line); err != nil {
				return 4
			}
		}
		fmt.Fprintln(os.Stderr, "the last line")
	case "litter":
		if os.MkdirAll("a/b", 0o700) != nil || os.WriteFile("a/b/secret", []byte("of a conversation"), 0o600) != nil || os.Symlink("/etc", "a/etc") != nil {
			return 5
		}
		fmt.Fprintln(os.Stderr, "littered")
	}
	<-time.After(time.Minute) // ends a helper that a failing test forgot
	return 0
}

// owner is a control plane that claims, says what it got, and never ends.
func owner(dir string) int {
	p, err := New(config(dir, "patient", &identities{}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	in, err := p.Claim(context.Background(), sandbox.Claim{Name: "hc-1", Harness: "native"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(in.Address)
	<-time.After(time.Minute)
	return 0
}

func config(dir, mode string, ids Identities) Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Config{
		WorkerPath: self, WorkerArgs: []string{helperFlag + mode},
		Workspaces: filepath.Join(dir, "workspaces"), LogDir: filepath.Join(dir, "logs"),
		TrustDomain: td, Identities: ids, MaxInstances: 4, Logger: slog.New(slog.DiscardHandler),
	}
}

// world is a provider and what is around it.
type world struct {
	*Provider
	dir string
	ids *identities
}

func start(t *testing.T, mode string, change ...func(*Config)) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), ids: &identities{}}
	cfg := config(w.dir, mode, w.ids)
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.Provider, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // what it says is tested where it matters
	return w
}

func claim(name string) sandbox.Claim { return sandbox.Claim{Name: name, Harness: "native"} }

func (w *world) claim(t *testing.T, name string) sandbox.Instance {
	t.Helper()
	in, err := w.Claim(t.Context(), claim(name))
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return in
}

func (w *world) alive(t *testing.T, in sandbox.Instance) bool {
	t.Helper()
	ok, err := w.Alive(t.Context(), in.ClaimName, in.UID)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func (w *world) list(t *testing.T) []string {
	t.Helper()
	list, err := w.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, in := range list {
		out = append(out, in.ClaimName)
	}
	slices.Sort(out)
	return out
}

func (w *world) workspace(uid string) string {
	return filepath.Join(w.dir, "workspaces", workspacePrefix+uid)
}

// empty fails where anything is left of any instance.
func (w *world) empty(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "workspaces"))
	if err != nil || len(entries) > 0 {
		t.Errorf("workspaces are left: %v, %v", entries, err)
	}
	if left := w.ids.registered(); len(left) > 0 {
		t.Errorf("identities are left: %v", left)
	}
	if list := w.list(t); len(list) > 0 {
		t.Errorf("instances are left: %v", list)
	}
}

// identities is a registrar that can fail and be watched.
type identities struct {
	mu         sync.Mutex
	live       map[string]bool
	made       int
	onRegister func(ctx context.Context, uid string) error
	onRemove   func(ctx context.Context, uid string) error
}

func (i *identities) Register(ctx context.Context, uid string) (string, error) {
	i.mu.Lock()
	hook := i.onRegister
	i.made++
	if i.live == nil {
		i.live = map[string]bool{}
	}
	i.live[uid] = true // also where the answer is lost
	i.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, uid); err != nil {
			return "", err
		}
	}
	return "unix:///run/" + uid + ".sock", nil
}

func (i *identities) Deregister(ctx context.Context, uid string) error {
	i.mu.Lock()
	hook := i.onRemove
	i.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, uid); err != nil {
			return err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.live, uid)
	return nil
}

func (i *identities) registered() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []string
	for uid := range i.live {
		out = append(out, uid)
	}
	return out
}

// requests is how often an identity was asked for.
func (i *identities) requests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.made
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// exists reports whether there is a process, a zombie included.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// listens reports whether somebody holds the listener of an address.
func listens(t *testing.T, address string) bool {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "https://"))
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// said waits until a worker wrote something.
func (w *world) said(t *testing.T, uid, text string) {
	t.Helper()
	eventually(t, "the worker says "+text, func() bool {
		b, err := os.ReadFile(filepath.Join(w.dir, "logs", logPrefix+uid+".log"))
		return err == nil && strings.Contains(string(b), text)
	})
}

// nothing fails where a channel has something.
func nothing(t *testing.T, exits <-chan sandbox.Exit) {
	t.Helper()
	select {
	case e, open := <-exits:
		if open {
			t.Errorf("told of the exit of %s", e.ClaimName)
		}
	default:
	}
}

var _ io.Closer = (*Provider)(nil)
