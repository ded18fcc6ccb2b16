//go:build linux

package process_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/process"
)

func TestStopEndsTheChild(t *testing.T) {
	for _, tc := range []struct {
		mode  string
		grace time.Duration
		want  syscall.Signal
	}{
		{"patient", 20 * time.Second, syscall.SIGTERM},
		{"patient", 0, syscall.SIGKILL},
		{"stubborn", 50 * time.Millisecond, syscall.SIGKILL},
	} {
		t.Run(tc.mode+" "+tc.grace.String(), func(t *testing.T) {
			p, f, _ := startFamily(t, 1, spec(t, tc.mode))
			if err := p.Stop(tc.grace); err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Done():
			default:
				t.Error("Stop returned before the child was reaped")
			}
			var exit *process.ExitError
			if err := p.Err(); !errors.As(err, &exit) || exit.Signal != tc.want || exit.Code != -1 {
				t.Errorf("ended with %v, want signal %v", err, tc.want)
			}
			f.gone(t)
		})
	}
}

func TestStopReachesGrandchildren(t *testing.T) {
	p, f, _ := startFamily(t, 2, spec(t, "family"))
	if err := p.Stop(time.Second); err != nil {
		t.Fatal(err)
	}
	f.gone(t)
}

func TestStopIsRepeatable(t *testing.T) {
	p, _, _ := startFamily(t, 1, spec(t, "patient"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := p.Stop(time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := p.Stop(time.Second); err != nil {
		t.Error(err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, process.ErrExited) {
		t.Errorf("Signal after the end: %v, want ErrExited", err)
	}
}

func TestGroupDoesNotOutliveItsLeader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := spec(t, "orphan")
	s.Stdin = r
	p, f, _ := startFamily(t, 1, s)
	if err := errors.Join(r.Close(), w.Close()); err != nil { // now the leader leaves
		t.Fatal(err)
	}
	if err := finished(t, p); err != nil {
		t.Errorf("ended with %v", err)
	}
	f.gone(t)
}

func TestContextEndsTheChild(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := process.Start(ctx, spec(t, "patient"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	var exit *process.ExitError
	if err := finished(t, p); !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL {
		t.Errorf("ended with %v, want SIGKILL", err)
	}
	if _, err := process.Start(ctx, spec(t, "patient")); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a context that has ended: %v", err)
	}
}

func TestExitStatus(t *testing.T) {
	if err := finished(t, start(t, spec(t, "exit", "0"))); err != nil {
		t.Errorf("exit 0: %v", err)
	}
	var exit *process.ExitError
	if err := finished(t, start(t, spec(t, "exit", "7"))); !errors.As(err, &exit) || exit.Code != 7 || exit.Signal != 0 {
		t.Errorf("exit 7: %v", err)
	}
	if p := start(t, spec(t, "patient")); p.Err() != nil {
		t.Errorf("running: %v", p.Err())
	}
}

func TestStandardStreams(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := spec(t, "echo")
	s.Stdin, s.Stdout = r, &out
	p := start(t, s)
	if err := errors.Join(r.Close(), writeAndClose(w, "to and fro")); err != nil {
		t.Fatal(err)
	}
	if err := finished(t, p); err != nil {
		t.Fatal(err)
	}
	if out.String() != "to and fro" {
		t.Errorf("got %q", out.String())
	}
}

// What has left the group can hold the output open, and must not hold up the end of the child.
func TestEscapedProcessDoesNotHoldUpDone(t *testing.T) {
	var out bytes.Buffer
	s := spec(t, "escape")
	s.Stdout = &out
	p, f, pids := startFamily(t, 1, s)
	err := finished(t, p)
	if kill := syscall.Kill(pids[0], syscall.SIGKILL); kill != nil {
		t.Error(kill)
	}
	if err != nil {
		t.Errorf("ended with %v", err)
	}
	f.gone(t)
}

func TestStartRefuses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2"
	for name, s := range map[string]process.Spec{
		"relative path":     {Path: "true"},
		"no path":           {},
		"missing program":   {Path: "/nonexistent/program"},
		"missing directory": {Path: self, Args: []string{helperArg, "exit", "0"}, Dir: "/nonexistent"},
		"malformed entry":   {Path: self, Args: []string{helperArg, "exit", "0"}, Env: []string{secret}},
		"nameless entry":    {Path: self, Args: []string{helperArg, "exit", "0"}, Env: []string{"=" + secret}},
		"foreground": {Path: self, Args: []string{helperArg, "exit", "0"}, Attr: func(a *syscall.SysProcAttr) {
			a.Foreground = true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := process.Start(t.Context(), s)
			if err == nil {
				_ = p.Stop(0)
				t.Fatal("started")
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows an environment entry: %v", err)
			}
		})
	}
}

func writeAndClose(f *os.File, s string) error {
	_, err := f.WriteString(s)
	return errors.Join(err, f.Close())
}
