package supervise

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/process"
)

const patience = time.Minute

// service is a supervised helper that serves a listener.
type service struct {
	child *Child
	addr  string
	ended chan End
}

func spec(mode string, files ...*os.File) process.Spec {
	return process.Spec{Path: "/proc/self/exe", Args: []string{helperArg, mode}, ExtraFiles: files}
}

func serviceOf(t *testing.T, mode string, b Backoff) service {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		t.Fatalf("%T", l)
	}
	file, err := tcp.File()
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	s := service{addr: l.Addr().String(), ended: make(chan End, 16)}
	s.child, err = Start(t.Context(), Config{
		Spec: spec(mode, file), Backoff: b, Ended: func(e End) { s.ended <- e },
		Ready: func(ctx context.Context) error { _, err := askPID(ctx, s.addr); return err },
	})
	if err != nil {
		t.Fatal(errors.Join(err, file.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.child.Stop(0), file.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// askPID gives the process id of who serves the address, once somebody does.
func askPID(ctx context.Context, addr string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return 0, err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		line, err := bufio.NewReader(conn).ReadString('\n')
		stop()
		_ = conn.Close()
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err == nil { // else it was killed between accept and answer
			return strconv.Atoi(strings.TrimSpace(line))
		}
	}
}

func (s service) pid(t *testing.T) int {
	t.Helper()
	pid, err := askPID(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestAKilledChildComesBackOnItsPort(t *testing.T) {
	s := serviceOf(t, "serve", Backoff{First: time.Millisecond})
	first := s.pid(t)
	if got := s.child.PID(); got != first {
		t.Errorf("PID %d, the one that answers is %d", got, first)
	}
	if err := s.child.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A connection that is made while nobody serves waits for the next life.
	second := s.pid(t)
	if second == first {
		t.Errorf("process %d answers after it was killed", first)
	}
	end := <-s.ended
	var how *process.ExitError
	if !errors.As(end.Err, &how) || how.Signal != syscall.SIGKILL {
		t.Errorf("told of %v, want the end by SIGKILL", end.Err)
	}
}

func TestPausesGrowWhileAChildKeepsEnding(t *testing.T) {
	s := serviceOf(t, "serve", Backoff{First: time.Millisecond, Most: 4 * time.Millisecond, Settled: time.Hour})
	want := []time.Duration{1, 2, 4, 4}
	for i, w := range want {
		pid := s.pid(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if end := <-s.ended; end.Pause != w*time.Millisecond {
			t.Errorf("end %d: pause %v, want %v", i+1, end.Pause, w*time.Millisecond)
		}
	}
}

func TestBackoffBeginsAnewAfterALongLife(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Most: time.Second, Settled: 10 * time.Second}
	for _, c := range []struct {
		name             string
		last, life, want time.Duration
	}{
		{"first end", 0, time.Millisecond, 100 * time.Millisecond},
		{"second", 100 * time.Millisecond, 0, 200 * time.Millisecond},
		{"bounded", 800 * time.Millisecond, 9 * time.Second, time.Second},
		{"long life", time.Second, 10 * time.Second, 100 * time.Millisecond},
	} {
		if got := b.next(c.last, c.life); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAChildThatEndsBeforeItIsReadyIsNotStartedAgain(t *testing.T) {
	ended := make(chan End, 1)
	c, err := Start(t.Context(), Config{
		Spec: spec("refuse"), Ended: func(e End) { ended <- e },
		Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	var early *ExitedError
	var how *process.ExitError
	if !errors.As(err, &early) || !errors.As(err, &how) || how.Code != 7 || c != nil {
		t.Fatalf("got %v, %v; want an ExitedError with status 7", c, err)
	}
	if len(ended) > 0 {
		t.Error("it was started again")
	}
}

func TestAChildThatIsNeverReadyIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var pid int
	_, err := Start(ctx, Config{Spec: spec("patient"), Ready: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v (process %d)", err, pid)
	}
}

func TestStopBeatsARestart(t *testing.T) {
	s := serviceOf(t, "serve", Backoff{First: time.Hour})
	if err := s.child.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.ended // it pauses now
	if err := s.child.Stop(patience); err != nil {
		t.Fatal(err)
	}
	if pid := s.child.PID(); pid != 0 {
		t.Errorf("process %d after Stop", pid)
	}
}

func TestStopEndsAStubbornChild(t *testing.T) {
	s := serviceOf(t, "stubborn", Backoff{})
	if err := s.child.Stop(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := s.child.Stop(0); err != nil {
		t.Errorf("again: %v", err)
	}
	if len(s.ended) > 0 {
		t.Error("an end that was asked for was told of")
	}
}

func TestTheSpecMustBeStartable(t *testing.T) {
	if _, err := Start(t.Context(), Config{Spec: process.Spec{Path: "/nowhere/to/be/found"}}); err == nil {
		t.Error("nothing was started, and no error")
	}
}
