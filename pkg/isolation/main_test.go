//go:build linux

package isolation_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/pkg/process"
)

// weakVariable, set to 1, lets tests of what this machine does not allow be skipped; they fail otherwise.
const weakVariable = "COFFERDAM_TEST_WEAK_ISOLATION"

// intruder is the program inside, and the launcher. It is static, and anybody can reach it.
var intruder string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "isolation-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		intruder = filepath.Join(dir, "intruder")
		cmd := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", intruder, "./internal/intrudertest")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Println("build the intruder:", err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		return 1
	}
	return code
}

// missing is what this machine lacks, found out once.
var missing = sync.OnceValues(func() ([]isolation.Missing, error) {
	l, err := isolation.NewLauncher(intruder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	return l.Probe(context.Background(), nextID())
})

// needs ends a test that needs a layer which this machine does not have.
func needs(t *testing.T, layers ...isolation.Layer) {
	t.Helper()
	found, err := missing()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found {
		if !slices.Contains(layers, m.Layer) {
			continue
		}
		if os.Getenv(weakVariable) == "1" {
			t.Skip(m)
		}
		t.Fatalf("%v. Or set %s=1 to leave out what this machine cannot show", m, weakVariable)
	}
}

// baseID is where the host ids of these tests begin; firstIDs counts them.
const baseID = 1_500_000_000

var firstIDs atomic.Uint32

// nextID gives host ids that no other test has.
func nextID() uint32 {
	if os.Geteuid() != 0 {
		return 0
	}
	return baseID + isolation.IDsPerSandbox*firstIDs.Add(1)
}

func launcher(t testing.TB) *isolation.Launcher {
	t.Helper()
	l, err := isolation.NewLauncher(intruder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

const inside = "/bin/intruder"

// world is a Spec of a world in which the intruder tries something.
func world(p isolation.Profile, args ...string) isolation.Spec {
	return isolation.Spec{
		Hostname: "sandbox", Profile: p,
		Mounts: []isolation.Mount{
			{Target: inside, Source: intruder, ReadOnly: true},
			{Target: "/tmp", Tmpfs: &isolation.Tmpfs{Size: 1 << 20, Inodes: 64, Mode: 0o1777}, NoExec: true},
		},
		Access:  isolation.Access{ReadWrite: []string{"/tmp"}},
		Program: isolation.Program{Path: inside, Args: args},
	}
}

func outer(args ...string) isolation.Spec { return world(isolation.ProfileWorker, args...) }

// nested puts a nested world beside an outer one that waits.
func nested(args ...string) isolation.Spec {
	s := outer("wait")
	n := world(isolation.ProfileProgram, args...)
	s.Nested = &n
	return s
}

// sandbox is one that runs, and what it says.
type sandbox struct {
	*process.Process
	line *bufio.Reader
}

// lines reads what sandboxes say, and not for longer than a test may last.
func lines(t testing.TB, r *os.File) *bufio.Reader {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReaderSize(r, 1<<20)
}

func begin(t testing.TB, launch isolation.Launch) *sandbox {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	launch.Stdout = w
	if launch.Stderr == nil {
		launch.Stderr = t.Output()
	}
	p, err := launcher(t).Start(t.Context(), launch)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(0); err != nil {
			t.Error(err)
		}
	})
	return &sandbox{Process: p, line: lines(t, r)}
}

// says gives the next line of the sandbox's output.
func (s *sandbox) says(t testing.TB) string {
	t.Helper()
	line, err := s.line.ReadString('\n')
	if err != nil {
		t.Fatalf("the sandbox said nothing: %q, %v, %v", line, err, s.Err())
	}
	return strings.TrimSuffix(line, "\n")
}

// silent waits until nobody holds the sandbox's output any more.
func (s *sandbox) silent(t testing.TB) {
	t.Helper()
	for {
		if _, err := s.line.ReadString('\n'); err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("something of the sandbox is left: %v", err)
			}
			return
		}
	}
}

// attempt runs a sandbox until something in it has said how its attempt went.
func attempt(t *testing.T, spec isolation.Spec) (reached bool, detail string) {
	t.Helper()
	return attemptIn(t, spec, nil)
}

// attemptIn is an attempt in worlds that are placed somewhere.
func attemptIn(t *testing.T, spec isolation.Spec, place func(isolation.World, int) error) (reached bool, detail string) {
	t.Helper()
	s := begin(t, isolation.Launch{Spec: spec, FirstID: nextID(), Place: place})
	verdict, detail, _ := strings.Cut(s.says(t), " ")
	if verdict != "reached" && verdict != "refused" {
		t.Fatalf("the intruder said %q", verdict+" "+detail)
	}
	return verdict == "reached", detail
}

// open is a folder of the host that anybody can enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isolation-open-") //nolint:usetesting // above that of TempDir nobody else may pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
