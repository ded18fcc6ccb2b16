//go:build linux

package main_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The runner is within reach of the agent, and there is one in every sandbox: it
// is small, and has nothing in it that could be turned against anybody.
func TestDependencyClosure(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "cofferdam.dev/services/worker/cmd/runner")
	list.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is built
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	closure := strings.Fields(string(out))
	for _, dep := range closure {
		switch {
		case slices.Contains([]string{"crypto/tls", "crypto/x509", "net/http", "os/exec", "plugin", "runtime/cgo", "database/sql"}, dep):
			t.Errorf("the runner links %s", dep)
		case strings.HasPrefix(dep, "cofferdam.dev/"):
			if !strings.HasPrefix(dep, "cofferdam.dev/services/worker/") && dep != "cofferdam.dev/pkg/strictjson" && dep != "cofferdam.dev/pkg/telemetry/redact" {
				t.Errorf("the runner links %s", dep)
			}
		case strings.Contains(strings.Split(dep, "/")[0], "."): // of another module
			if !strings.HasPrefix(dep, "golang.org/x/sys/unix") && !strings.HasPrefix(dep, "github.com/klauspost/compress") {
				t.Errorf("the runner links %s", dep)
			}
		}
	}
	if !slices.Contains(closure, "github.com/klauspost/compress/zstd") {
		t.Errorf("the closure of %d packages does not show what is linked", len(closure))
	}
}

// Bounds of an idle runner, in KiB. Most of what it holds is its own program, which
// all runners of a machine share.
const (
	maxResident  = 8 << 10
	maxAnonymous = 2 << 10
)

// As it ships it is static, small, and ends well when it is told to.
func TestBinary(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "rb") //nolint:usetesting // t.TempDir's names are too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	file := filepath.Join(base, "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, "cofferdam.dev/services/worker/cmd/runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{"-listen", "unix://" + base + "/s"}
	for _, name := range []string{"home", "workspace", "temp"} {
		must(t, os.Mkdir(filepath.Join(base, name), 0o755))
		args = append(args, "-"+name, filepath.Join(base, name))
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), file, args...)
	cmd.Env, cmd.Stderr = []string{}, &log
	must(t, cmd.Start())
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := net.Dial("unix", base+"/s") //nolint:noctx // of this machine
		if err == nil {
			must(t, conn.Close())
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not listen")
		}
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "smaps_rollup"))
	must(t, err)
	resident, anonymous := field(t, b, "Rss:"), field(t, b, "Pss_Anon:")
	t.Logf("resident %d KiB, of which anonymous %d KiB", resident, anonymous)
	if resident > maxResident || anonymous > maxAnonymous {
		t.Errorf("an idle runner holds %d KiB, of which its own %d", resident, anonymous)
	}
	must(t, cmd.Process.Signal(unix.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if _, err := os.Lstat(base + "/s"); err == nil {
		t.Error("the socket is left")
	}
}

func field(t testing.TB, smaps []byte, name string) int {
	t.Helper()
	for line := range strings.Lines(string(smaps)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return n
		}
	}
	t.Fatalf("no %s in %s", name, smaps)
	return 0
}
