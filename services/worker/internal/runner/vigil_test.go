//go:build linux

package runner_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// alarms is how many timers such a program has.
const alarms = 100

// alarmed is a program that has itself sent SIGCONT by timers, first after a time and
// then every so often. Each is a timer of its own: one that repeats is set again only
// when its signal is taken, and a stop that comes before that takes the signal away.
func alarmed(t testing.TB, first, again time.Duration, rest string) hosted.Command {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("NOT TESTED: the program names system calls by their numbers")
	}
	const script = `$| = 1; my $sub = %s; my $event = pack("q l l x48", 0, 18, 0);
for my $i (0 .. %d) { my $id = pack("l", 0); syscall(222, 1, $event, $id) == 0 or die; my $ms = %d + $i * %d;
my $when = pack("q4", 0, 0, int($ms / 1000), $ms %% 1000 * 1000000); syscall(223, unpack("l", $id), 0, $when, 0) == 0 or die }
print "ready\n"; $sub->();`
	return hosted.Command{Path: "perl", Args: []string{"-e", fmt.Sprintf(script, rest, alarms-1, first.Milliseconds(), again.Milliseconds())}}
}

// wantRan demands that a frozen program is ended for having run.
func wantRan(t testing.TB, s *runnertest.Stand, p hosted.Program) {
	t.Helper()
	if e := ended(t, p); e != (hosted.Exit{Code: -1, Signal: "SIGKILL", Reason: runnerproto.ReasonRan}) {
		t.Errorf("exit %+v", e)
	}
	waittest.Until(t, "nothing of the program is left", func() bool { return len(processes(t, s)) == 0 })
}

// stopped reports whether all of these are, as the machine sees them.
func stopped(t testing.TB, pids []int) bool {
	t.Helper()
	for _, pid := range pids {
		b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
		if err != nil || b[strings.LastIndexByte(string(b), ')')+2] != 'T' {
			return false
		}
	}
	return true
}

// A frozen program that has seen to it that it is woken does not go on, and nothing
// that it started does.
func TestFrozenProgramWakes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, alarmed(t, 300*time.Millisecond, 300*time.Millisecond, `sub { if (!fork) { exec "sleep", "600" } 1 while 1 }`))
		line(t, p)
		must(t, w.Freeze(t.Context()))
		wantRan(t, s, p)
		must(t, w.Thaw(t.Context())) // nothing is let go on
		if got := output(t, w, "echo a new program runs"); got != "a new program runs\n" {
			t.Errorf("%q", got)
		}
	})
}

// One that wakes, does something, and stops itself again, in much less time than
// lies between two looks, is found as well.
func TestFrozenProgramWakesForAMoment(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, alarmed(t, 1450*time.Millisecond, time.Second, `sub { $SIG{CONT} = sub { kill STOP => $$ }; select undef, undef, undef, 600 while 1 }`))
		line(t, p)
		must(t, w.Freeze(t.Context()))
		wantRan(t, s, p)
	})
}

// To freeze what is frozen does not hide that it ran, and to thaw it neither.
func TestWakingIsNotHidden(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*runnerclient.World, context.Context) error{
		"freeze": (*runnerclient.World).Freeze, "thaw": (*runnerclient.World).Thaw,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
				p := begin(t, w, alarmed(t, 300*time.Millisecond, 300*time.Millisecond, `sub { 1 while 1 }`))
				line(t, p)
				must(t, w.Freeze(t.Context()))
				waittest.Until(t, "it wakes", func() bool {
					pids := processes(t, s)
					return len(pids) == 0 || !stopped(t, pids)
				})
				if err := call(w, t.Context()); err != nil { // or it was found before, and is gone
					wantCode(t, err, fault.Protocol)
				}
				wantRan(t, s, p)
			})
		})
	}
}

// An archive that is under way when something wakes is worth nothing.
func TestArchiveOfAWakingProgram(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		output(t, w, `head -c 8000000 /dev/urandom > "$HOME/large"`)
		p := begin(t, w, alarmed(t, time.Second, time.Second, `sub { 1 while 1 }`))
		line(t, p)
		must(t, w.Freeze(t.Context()))
		slow := &gate{reached: make(chan struct{}), open: make(chan struct{})}
		archived := make(chan error, 1)
		go func() {
			archived <- w.Archive(t.Context(), hosted.Paths{Include: []string{"large"}}, 16<<20, slow)
		}()
		<-slow.reached
		wantRan(t, s, p)
		close(slow.open)
		wantCode(t, <-archived, fault.Protocol)
		must(t, w.Archive(t.Context(), hosted.Paths{Include: []string{"large"}}, 16<<20, io.Discard)) // the world is empty
	})
}

// What stays stopped is left alone, for however long.
func TestFrozenProgramStays(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell(`for i in 1 2 3 4 5 6 7 8; do sh -c 'while :; do /bin/true; done' & done; (exit 0 & exec sleep 600) & echo ready; read x; echo on; exec sleep 600`))
		line(t, p)
		for range 3 {
			must(t, w.Freeze(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			select {
			case <-p.Done(): // nothing else is waited for: nothing happens in this time
				t.Fatalf("it was ended: %+v", p.Exit())
			case <-ctx.Done():
			}
			cancel()
			must(t, w.Thaw(t.Context()))
		}
		_, err := p.Stdin().Write([]byte("x\n"))
		must(t, err)
		if got := line(t, p); got != "on" {
			t.Errorf("%q", got)
		}
	})
}
