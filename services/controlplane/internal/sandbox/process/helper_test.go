package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// patience bounds a wait for something that must come. It is no measure of
// anything: a test that needs it all has failed.
const patience = 30 * time.Second

var td = spiffeid.RequireTrustDomainFromString("cofferdam.test")

// helperFlag among the arguments of the test worker says what it does.
const helperFlag = "--helper="

// ownerFlag makes the test binary a control plane with sandboxes.
const ownerFlag = "--owner="

func TestMain(m *testing.M) {
	for _, arg := range os.Args {
		if dirs, ok := strings.CutPrefix(arg, ownerFlag); ok {
			dir, bin, _ := strings.Cut(dirs, ",")
			os.Exit(owner(dir, bin))
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built.dir) // a folder of the system's, for things that may stay behind
		os.Exit(code)
	}))
}

// built are the programs of testdata; the first test builds them. They are static,
// as those that ship: nothing else is in a sandbox.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "sandbox-test-"); built.err != nil { //nolint:usetesting // it serves all tests
			return
		}
		// The launcher is executed by the users of sandboxes, whom the folder is closed to.
		build := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-buildvcs=false", "-o", built.dir+"/", "./testdata/launcher", "./testdata/worker", "./testdata/runner")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// owner is a control plane that has a claimed and a warm sandbox, says what it
// got, and never ends.
func owner(dir, bin string) int {
	cfg := config(dir, bin, "litter", &identities{})
	cfg.Profiles[0].Warm = 1
	p, err := New(context.Background(), cfg)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	in, err := p.Claim(context.Background(), claim("hc-1"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	p.Warm()
	for warmOf(p) == nil {
		<-time.After(time.Millisecond)
	}
	fmt.Println(in.PID, warmOf(p).PID)
	<-time.After(time.Minute)
	return 0
}

// warmOf gives a warm instance that is ready, or nil.
func warmOf(p *Provider) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.all {
		if in.freeLocked() && in.ready {
			return in
		}
	}
	return nil
}

// small keeps a sandbox of the tests small.
func small() Limits { return Limits{MemoryMiB: 64, PIDs: 48, CPUs: 1, WorkspaceMiB: 8} }

func config(dir, bin, mode string, ids Identities) Config {
	return Config{
		LauncherPath: filepath.Join(bin, "launcher"), WorkerPath: filepath.Join(bin, "worker"), WorkerArgs: []string{helperFlag + mode},
		Profiles: []Profile{Profile{Name: "small", Harness: "native", Limits: small()}.withDefaults()},
		Sockets:  filepath.Join(dir, "svc"), Dir: filepath.Join(dir, "w"), LogDir: filepath.Join(dir, "logs"),
		TrustDomain: td, Identities: ids, MaxInstances: 4, Logger: slog.New(slog.DiscardHandler),
	}
}

// world is a provider and what is around it.
type world struct {
	*Provider
	dir string
	ids *identities
}

// folder is a new folder with a short path, since sockets stand in it, and with
// those of the services.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sbx-") //nolint:usetesting // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(dir, "svc"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Services(), workloadName) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "svc", name+socketSuffix))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // with its folder
		if err := os.Chmod(l.Addr().String(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func start(t *testing.T, mode string, change ...func(*Config)) *world {
	t.Helper()
	w := &world{dir: shortDir(t)}
	w.ids = &identities{socket: filepath.Join(w.dir, "svc", workloadName+socketSuffix)}
	cfg := config(w.dir, programs(t), mode, w.ids)
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.Provider, err = New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // what it says is tested where it matters
	return w
}

// strong ends a test that needs everything that this machine may not allow.
func (w *world) strong(t *testing.T) {
	t.Helper()
	if weak := w.Weaknesses(); len(weak) > 0 {
		t.Skipf("NOT TESTED on this machine: %v", weak)
	}
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

// groups are the folders of the provider's own cgroups, with those in them.
func (w *world) groups(t *testing.T) []string {
	t.Helper()
	g, err := w.cgroups.Create("where", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range g.Dirs() {
		entries, err := os.ReadDir(filepath.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != "where" {
				found = append(found, filepath.Join(filepath.Dir(dir), e.Name()))
			}
		}
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	return found
}

// empty fails where anything is left of any instance.
func (w *world) empty(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "w"))
	if err != nil || len(entries) > 0 {
		t.Errorf("files are left: %v, %v", entries, err)
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
	socket     string
	mu         sync.Mutex
	live       map[string]bool
	peers      map[string]uint32
	made       int
	onRegister func(ctx context.Context, uid string) error
	onRemove   func(ctx context.Context, uid string) error
}

func (i *identities) Register(ctx context.Context, uid string, peer uint32) (string, error) {
	i.mu.Lock()
	hook := i.onRegister
	i.made++
	if i.live == nil {
		i.live, i.peers = map[string]bool{}, map[string]uint32{}
	}
	i.live[uid] = true // also where the answer is lost
	i.peers[uid] = peer
	i.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, uid); err != nil {
			return "", err
		}
	}
	socket := i.socket
	if socket == "" { // in the owner, which has no services of its own
		socket = "/dev/null"
	}
	return "unix://" + socket, nil
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

// hooks sets what happens from now on.
func (i *identities) hooks(onRegister, onRemove func(ctx context.Context, uid string) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.onRegister, i.onRemove = onRegister, onRemove
}

// exists reports whether there is a process, a zombie included.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// listens reports whether somebody holds the listener of an address.
func listens(t *testing.T, address string) bool {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// log is what a worker wrote.
func (w *world) log(uid string) string {
	b, _ := os.ReadFile(filepath.Join(w.dir, "logs", logPrefix+uid+".log")) // nothing, where it is not there yet
	return string(b)
}

// said waits until a worker wrote something.
func (w *world) said(t *testing.T, uid, text string) {
	t.Helper()
	waittest.Until(t, "the worker says "+text, func() bool { return strings.Contains(w.log(uid), text) })
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
