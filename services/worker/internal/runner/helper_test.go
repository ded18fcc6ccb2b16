//go:build linux

package runner_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

func TestMain(m *testing.M) {
	runnertest.Main()
	goleak.VerifyTestMain(m)
}

// bound is longer than anything here may take.
const bound = 60 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code || err == nil {
		t.Fatalf("error %v, want %s", err, code)
	}
}

// everywhere runs a test on a runner among the test's processes, and on one that is
// process 1 of a world of its own.
func everywhere(t *testing.T, f func(t *testing.T, s *runnertest.Stand, w *runnerclient.World)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		s := runnertest.Start(t)
		f(t, s, s.Dial(t))
	})
	t.Run("nested", func(t *testing.T) {
		t.Parallel()
		nested(t)
		s := runnertest.StartNested(t)
		f(t, s, s.Dial(t))
	})
}

func nested(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can give a world two users")
	}
}

// shell is a program of sh.
func shell(script string) hosted.Command {
	return hosted.Command{Path: "/bin/sh", Args: []string{"-c", script}}
}

func begin(t testing.TB, w hosted.World, c hosted.Command) hosted.Program {
	t.Helper()
	p, err := w.Start(t.Context(), c)
	must(t, err)
	return p
}

// output runs a script to its end.
func output(t testing.TB, w hosted.World, script string) string {
	t.Helper()
	p := begin(t, w, shell(script))
	must(t, p.Stdin().Close())
	b, err := io.ReadAll(p.Stdout())
	must(t, err)
	ended(t, p)
	return string(b)
}

func ended(t testing.TB, p hosted.Program) hosted.Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(bound):
		t.Fatal("the program does not end")
		return hosted.Exit{}
	}
}

// line reads one line of a program that goes on.
func line(t testing.TB, p hosted.Program) string {
	t.Helper()
	var b bytes.Buffer
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(p.Stdout(), one); err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		if one[0] == '\n' {
			return b.String()
		}
		b.WriteByte(one[0])
	}
}

// put writes a file.
func put(t testing.TB, w hosted.World, f hosted.File, content string) {
	t.Helper()
	must(t, w.WriteFile(t.Context(), f, strings.NewReader(content)))
}

// apart skips what needs a second user.
func apart(t *testing.T, w *runnerclient.World) {
	t.Helper()
	if !w.About().OwnUser {
		t.Skip("NOT TESTED: the runner may not change the user")
	}
}
