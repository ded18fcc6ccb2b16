package mcpstdio_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
	"cofferdam.dev/services/toolbroker/internal/npmpeers"
)

// weakVariable, set to 1, lets tests of what this machine does not allow be skipped.
const weakVariable = "COFFERDAM_TEST_WEAK_ISOLATION"

// intruderDir is where the intruder is, once it is built. TestMain removes it.
var intruderDir string

// intruder is built once, static: nothing but itself has to be in its world. Anybody
// may run it, for where the host's paths are those of a world.
var intruder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mcpstdio-")
	if err != nil {
		return "", err
	}
	intruderDir = dir
	out := filepath.Join(dir, "intruder")
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", out, "./internal/intruder")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return out, fmt.Errorf("%w: %s", err, said)
	}
	return out, nil
})

func built(t *testing.T) string {
	t.Helper()
	path, err := intruder()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// worlds are those of a broker with private files, on a machine that allows all of
// it.
func worlds(t *testing.T, private ...string) *mcpstdio.Worlds {
	t.Helper()
	w := mcpstdio.OpenWorlds(t.Context(), mcpstdio.WorldsConfig{
		Launcher: built(t), FirstID: mcpstdio.DefaultFirstID, Private: private, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.Of(mcpstdio.Wanted{}); err != nil {
		if os.Getenv(weakVariable) == "1" {
			t.Skip("NOT TESTED: " + err.Error())
		}
		t.Fatalf("%v. Or set %s=1 to leave out what this machine cannot show", err, weakVariable)
	}
	return w
}

// belongings of a broker: a folder with its database, a secret and a socket, and
// listeners.
type belongings struct{ dir, listener, address string }

func own(t *testing.T) belongings {
	t.Helper()
	dir, err := os.MkdirTemp("", "broker-") //nolint:usetesting // short enough for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{"bindings.db": "SQLite format 3", "token": "secret-0123456789"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := belongings{dir: dir, address: fmt.Sprint(address(&mine))}
	for _, at := range [][2]string{{"unix", dir + "/broker.sock"}, {"unix", fmt.Sprint("@cofferdam-test-", os.Getpid())}, {"tcp", "127.0.0.1:0"}} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if at[0] == "tcp" {
			b.listener = l.Addr().String()
		}
	}
	return b
}

// mine is a byte of this process that can be read.
var mine [1]byte

func (b belongings) attack(t *testing.T, world *mcpstdio.World) string {
	t.Helper()
	_, err := mcpstdio.Start(t.Context(), mcpstdio.Config{
		Command: []string{built(t), "try", fmt.Sprint(os.Getpid()), b.address, b.dir, b.listener}, Env: []string{"A=1"},
		ConnectTimeout: 30 * time.Second, World: world,
	})
	said, ok := errors.AsType[*mcpstdio.StderrError](err)
	if !ok {
		t.Fatalf("it said nothing: %v", err)
	}
	return said.Tail
}

// attempts are what the intruder tries.
var attempts = []string{
	"database", "write", "credential", "folder", "environ", "command line", "memory", "descriptors", "root", "ptrace", "signal",
	"socket", "abstract socket", "loopback",
}

// A hostile server gets at nothing of its broker's. Without a world it gets at all
// of it, which shows that the attempts are good ones.
func TestAHostileServerGetsAtNothingOfTheBroker(t *testing.T) {
	b := own(t)
	w, err := worlds(t, b.dir).Of(mcpstdio.Wanted{Slot: 7})
	if err != nil {
		t.Fatal(err)
	}
	said := b.attack(t, w)
	for _, name := range attempts {
		if !strings.Contains(said, "refused "+name+":") {
			t.Errorf("%s: it said\n%s", name, said)
		}
	}
	if !strings.Contains(said, fmt.Sprintf("uid %d gid %d pid 1\n", isolation.WorkerID, isolation.WorkerID)) {
		t.Errorf("it said\n%s", said)
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: the other half is for root: others may not look at their parent everywhere")
	}
	said = b.attack(t, nil)
	for _, name := range attempts {
		if !strings.Contains(said, "GOT "+name+"\n") {
			t.Errorf("without a world it does not get at %s, so this test shows nothing:\n%s", name, said)
		}
	}
}

// Each of the layers that keep the broker's files and processes away is needed.
func TestALayerLessIsAWallLess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: ids of its own take root")
	}
	b := own(t)
	w, err := worlds(t).Of(mcpstdio.Wanted{Slot: 8, Network: true})
	if err != nil {
		t.Fatal(err)
	}
	if said := b.attack(t, w); !strings.Contains(said, "GOT loopback\n") || !strings.Contains(said, "refused database") {
		t.Errorf("with the network it said\n%s", said)
	}
	w.Without = append(w.Without, isolation.MountNamespace, isolation.PIDNamespace, isolation.Landlock)
	if said := b.attack(t, w); !strings.Contains(said, "GOT command line\n") || !strings.Contains(said, "refused database") {
		t.Errorf("with the uid alone it said\n%s", said)
	}
}

// A server reads and changes what it is given, and only that.
func TestAServerHasTheFoldersThatItIsGiven(t *testing.T) {
	t.Parallel()
	w := worlds(t)
	host := t.TempDir()
	for _, name := range []string{"read", "write", "none"} {
		if err := os.Mkdir(filepath.Join(host, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(host, name, "f"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(host, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	world, err := w.Of(mcpstdio.Wanted{Slot: 9, Read: []string{host + "/read"}, Write: []string{host + "/write"}})
	if err != nil {
		t.Fatal(err)
	}
	const script = `cat $1/read/f; echo x > $1/read/new || echo "no new in read"; echo made > $1/write/new && cat $1/write/f; cat $1/none/f || echo "no none"; ls $1`
	_, err = mcpstdio.Start(t.Context(), mcpstdio.Config{
		Command: []string{"/bin/sh", "-c", "{ " + script + "; } >&2", "sh", host}, Env: []string{"PATH=/usr/bin:/bin"}, ConnectTimeout: 30 * time.Second, World: world,
	})
	said, ok := errors.AsType[*mcpstdio.StderrError](err)
	if !ok {
		t.Fatal(err)
	}
	for _, want := range []string{"no new in read", "no none", "read\nwrite"} {
		if !strings.Contains(said.Tail, want) {
			t.Errorf("it said %q", said.Tail)
		}
	}
	if got, err := os.ReadFile(host + "/write/new"); err != nil || string(got) != "made\n" {
		t.Errorf("it wrote %q, %v", got, err)
	}
}

// What would show a server the broker's own files is refused, also by a link.
func TestNoFolderShowsTheBrokersFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private := filepath.Join(dir, "state")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	database, within := filepath.Join(private, "records.db"), filepath.Join(private, "more")
	if err := errors.Join(os.WriteFile(database, nil, 0o600), os.Mkdir(within, 0o700)); err != nil {
		t.Fatal(err)
	}
	w := worlds(t, private, filepath.Join(private, "not-yet-there.db"))
	for _, p := range []string{dir, private, link, filepath.Dir(dir), database, within, filepath.Join(link, "state", "records.db")} {
		if _, err := w.Of(mcpstdio.Wanted{Read: []string{p}}); err == nil || !strings.Contains(err.Error(), "the broker's own") {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := w.Of(mcpstdio.Wanted{Read: []string{t.TempDir()}}); err != nil {
		t.Error(err)
	}
}

// Where a server cannot be isolated it does not run, unless the operator says so.
func TestWithoutIsolationNothingRuns(t *testing.T) {
	t.Parallel()
	cfg := mcpstdio.WorldsConfig{FirstID: mcpstdio.DefaultFirstID, Logger: slog.New(slog.DiscardHandler)}
	for _, launcher := range []string{"", "/nowhere/launcher", "/bin/true"} {
		cfg.Launcher, cfg.AllowWeak = launcher, false
		w := mcpstdio.OpenWorlds(t.Context(), cfg)
		if world, err := w.Of(mcpstdio.Wanted{}); err == nil || !strings.Contains(err.Error(), "--allow-weak-isolation") {
			t.Errorf("%q: %v, %v", launcher, world, err)
		}
		cfg.AllowWeak = true
		weak := mcpstdio.OpenWorlds(t.Context(), cfg)
		if world, err := weak.Of(mcpstdio.Wanted{}); world != nil || err != nil {
			t.Errorf("%q, weak: %v, %v", launcher, world, err)
		}
		if err := errors.Join(w.Close(), weak.Close()); err != nil {
			t.Error(err)
		}
	}
}

// The MCP project's own file server works in a world, with the folder that it is
// given and no other.
func TestTheReferenceFileServerInAWorld(t *testing.T) {
	t.Parallel()
	peers := npmpeers.Need(t)
	folder := filepath.Join(t.TempDir(), "files")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o777)); err != nil { // its server is another user
		t.Fatal(err)
	}
	world, err := worlds(t).Of(mcpstdio.Wanted{Slot: 10, Read: []string{peers.Script("node_modules")}, Write: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mcpstdio.Start(t.Context(), mcpstdio.Config{Command: peers.Server("filesystem", folder), ConnectTimeout: time.Minute, World: world})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	call := func(tool string, args map[string]string) string {
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Call(within(t, time.Minute), tool, text, never)
		if err != nil || a.Error != nil {
			t.Fatal(err, a.Error)
		}
		return string(a.Result)
	}
	if got := call("write_file", map[string]string{"path": folder + "/a.txt", "content": "the word is tern"}); strings.Contains(got, "isError\":true") {
		t.Error(got)
	}
	if got := call("read_text_file", map[string]string{"path": folder + "/a.txt"}); !strings.Contains(got, "the word is tern") {
		t.Error(got)
	}
	if got, err := os.ReadFile(folder + "/a.txt"); err != nil || string(got) != "the word is tern" {
		t.Errorf("%q, %v", got, err)
	}
}
