//go:build linux

package runner_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// A program has the streams, arguments and folder that it was given, and ends as
// it ended.
func TestStart(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, hosted.Command{Path: "sh", Args: []string{"-c", `cat; printf ' %s' "$1"; exit 7`, "sh", "a\nb"}})
		_, err := io.WriteString(p.Stdin(), "hello")
		must(t, err)
		must(t, p.Stdin().Close())
		must(t, p.Stdin().Close()) // twice is harmless
		got, err := io.ReadAll(p.Stdout())
		must(t, err)
		if string(got) != "hello a\nb" {
			t.Errorf("output %q", got)
		}
		if e := ended(t, p); e != (hosted.Exit{Code: 7}) {
			t.Errorf("exit %+v", e)
		}
		if _, err := p.Stdin().Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write after close: %v", err)
		}
		if e := ended(t, begin(t, w, shell("kill -KILL $$"))); e != (hosted.Exit{Code: -1, Signal: "SIGKILL"}) {
			t.Errorf("exit %+v", e)
		}
		for dir, want := range map[string]string{"": w.About().Workspace, "/": "/", hosted.Home: w.About().Home} {
			p := begin(t, w, hosted.Command{Path: "pwd", Dir: dir})
			if got, err := io.ReadAll(p.Stdout()); err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("in %q: %q, %v, want %s", dir, got, err, want)
			}
			ended(t, p)
		}
	})
}

// What a program is not given it does not have: environment, descriptors,
// capabilities, a way to get them, core files, the runner's user.
func TestInheritsNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, hosted.Command{Path: "/usr/bin/env", Env: []string{"ONE=1", "USER=me"}})
		b, err := io.ReadAll(p.Stdout())
		must(t, err)
		ended(t, p)
		env := strings.Split(strings.TrimSpace(string(b)), "\n")
		slices.Sort(env)
		a := w.About()
		want := []string{"HOME=" + a.Home, "ONE=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + a.Temp, "USER=me"}
		if !slices.Equal(env, want) {
			t.Errorf("environment %q, want %q", env, want)
		}
		if fds := strings.Fields(output(t, w, "ls /proc/self/fd")); !slices.Equal(fds, []string{"0", "1", "2", "3"}) { // 3 is ls's own
			t.Errorf("descriptors %v", fds)
		}
		status := output(t, w, `cat /proc/self/status /proc/self/limits`)
		for _, want := range []string{"NoNewPrivs:\t1\n", "CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapAmb:\t0000000000000000\n"} {
			if !strings.Contains(status, want) {
				t.Errorf("no %q in %s", want, status)
			}
		}
		// Not zero, with which the kernel still pipes a dump to a program of the host.
		if cores := regexp.MustCompile(`(?m)^Max core file size +1 +1 +bytes`); !cores.MatchString(status) {
			t.Errorf("core dumps are not off: %s", status)
		}
		if got := output(t, w, `test "$(cut -d' ' -f5,6 /proc/$$/stat)" = "$$ $$" && echo own`); got != "own\n" {
			t.Error("the program has no session and group of its own")
		}
		apart(t, w)
		if got := output(t, w, "id -u; id -g; id -G"); got != "1000\n1000\n1000\n" {
			t.Errorf("ids %q", got)
		}
	})
}

// The program cannot see into the runner, signal it, or connect to it.
func TestCannotReachTheRunner(t *testing.T) {
	t.Parallel()
	nested(t)
	s := runnertest.StartNested(t)
	w := s.Dial(t)
	if !w.About().OwnProcesses || !w.About().OwnUser {
		t.Fatalf("world %+v", w.About())
	}
	socket := strings.TrimPrefix(s.Address, "unix://")
	info, err := os.Stat(socket)
	must(t, err)
	if info.Mode().Perm() != 0o660 {
		t.Errorf("socket has mode %v", info.Mode())
	}
	got := output(t, w, `exec 2>&1
cat /proc/1/environ && echo reached environ
cat /proc/1/maps && echo reached maps
ls /proc/1/fd && echo reached fd
kill -KILL 1 && echo reached it with a signal
head -c1 /proc/1/mem && echo reached memory
ls "`+filepath.Dir(socket)+`" && echo reached the folder of its socket
true`)
	if strings.Contains(got, "reached") {
		t.Errorf("%s", got)
	}
}

// A program that cannot be started is a fault of the options, and leaves nothing.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		put(t, w, hosted.File{Path: hosted.Workspace + "/text"}, "text")
		put(t, w, hosted.File{Path: hosted.Workspace + "/broken", Executable: true}, "\x7fELF")
		text, broken := filepath.Join(w.About().Workspace, "text"), filepath.Join(w.About().Workspace, "broken")
		for name, c := range map[string]hosted.Command{
			"missing":        {Path: "/nowhere/program"},
			"not on PATH":    {Path: "no-such-program"},
			"empty":          {},
			"relative":       {Path: "./sh"},
			"not executable": {Path: text},
			"no program":     {Path: broken},
			"a folder":       {Path: "/usr"},
			"folder missing": {Path: "sh", Dir: "/nowhere"},
			"folder is none": {Path: "sh", Dir: text},
			"folder is rel.": {Path: "sh", Dir: "x"},
			"NUL":            {Path: "sh", Args: []string{"a\x00b"}},
			"NUL in env":     {Path: "sh", Env: []string{"A=a\x00b"}},
			"not UTF-8":      {Path: "sh", Args: []string{"\xff"}},
			"argument large": {Path: "/bin/sh", Args: []string{strings.Repeat("x", 200<<10)}},
		} {
			_, err := w.Start(t.Context(), c)
			if !fault.Is(err, fault.HarnessOptionsInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := w.Start(t.Context(), hosted.Command{Path: "sh", Args: []string{strings.Repeat("x", 2<<20)}})
		wantCode(t, err, fault.RequestTooLarge)
		if got := output(t, w, "echo still works"); got != "still works\n" {
			t.Errorf("%q", got)
		}
	})
}

// One program at a time; what the one before left is gone when the next starts.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		first := begin(t, w, shell("setsid sh -c 'echo $$; exec sleep 600' & wait"))
		line(t, first)
		_, err := w.Start(t.Context(), shell("true"))
		wantCode(t, err, fault.AlreadyRunning)
		must(t, w.KillAll(t.Context(), 0))

		second := begin(t, w, shell("setsid sh -c 'echo $$; exec sleep 600' & exit"))
		left := line(t, second)
		ended(t, second)
		if got := output(t, w, "kill -0 "+left+" 2>&1 && echo alive; true"); strings.Contains(got, "alive") {
			t.Errorf("the child of the program before lives")
		}
	})
}

// Standard error goes to the log of the runner, bounded and without what looks like
// a secret, where debugging was asked for, and nowhere else.
func TestStandardError(t *testing.T) {
	t.Parallel()
	const script = `echo "say so" >&2; echo "x-goog-api-key: c4n4ryC4N4RYc4n4ry" >&2; head -c 100000 /dev/zero | tr '\0' x >&2; echo >&2
i=0; while [ $i -lt 5000 ]; do echo "flood $i" >&2; i=$((i+1)); done; echo out`
	t.Run("debug", func(t *testing.T) {
		t.Parallel()
		s := runnertest.Start(t, "-log-level", "debug")
		if got := output(t, s.Dial(t), script); got != "out\n" {
			t.Errorf("output %q", got)
		}
		waittest.Until(t, "the count of what was dropped", func() bool { return strings.Contains(s.Log.String(), "lines of the program were dropped") })
		log := s.Log.String()
		for _, want := range []string{`"level":"DEBUG","msg":"program","text":"say so"`, `"text":"x-goog-api-key: [redacted]"`} {
			if !strings.Contains(log, want) {
				t.Errorf("no %s in the log: %s", want, log)
			}
		}
		if n := len(log); n > 64<<10 {
			t.Errorf("%d bytes of log", n)
		}
	})
	t.Run("by default", func(t *testing.T) {
		t.Parallel()
		everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
			if got := output(t, w, script); got != "out\n" {
				t.Errorf("output %q", got)
			}
			// All that it wrote was read by then: a program waits for a full pipe.
			if log := s.Log.String(); strings.Contains(log, "say so") || strings.Contains(log, "flood") || strings.Contains(log, "c4n4ry") {
				t.Errorf("logged: %s", log)
			}
		})
	})
}

// A spell's lines are logged, the rest of it is counted, and the next spell has its
// own. A line that is too long is cut.
func TestStandardErrorIsBoundedPerSecond(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	read, write := io.Pipe()
	var clock atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		runner.LogLines(log, read, func() time.Time { return time.Unix(clock.Load(), 0) })
	}()
	const each = 60
	for range 2 {
		clock.Add(1)
		for range each {
			if _, err := io.WriteString(write, strings.Repeat("y", 4<<10)+"\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	got := out.String()
	lines, longest := strings.Count(got, `"msg":"program"`), 0
	for line := range strings.Lines(got) {
		longest = max(longest, len(line))
	}
	if want := 2 * runner.LinesASecond; lines != want || strings.Count(got, `"count":40`) != 2 {
		t.Errorf("%d lines were logged, want %d, and 40 counted twice: %s", lines, want, got)
	}
	if longest > 1300 {
		t.Errorf("a line of the log has %d bytes", longest)
	}
}
