package command_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/command"
)

// asCommand makes this test binary a command.
const asCommand = "COMMAND_TEST_MAIN"

// figures are what the command reports.
type figures struct{}

func (figures) Verdict() error { return nil }

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command.Main("test", func() (string, error) { return "", nil }, func(*flag.FlagSet) func(context.Context, command.Env) (command.Report, error) {
			return work
		}))
	}
	goleak.VerifyTestMain(m)
}

// work tells people something, and then waits until it is let go on or is ended.
func work(ctx context.Context, e command.Env) (command.Report, error) {
	if err := os.WriteFile(e.Folder+"/big", []byte("x"), 0o600); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintln(e.Progress, "at work")
	stdin := make(chan error, 1)
	go func() {
		var answer string
		_, err := fmt.Scanln(&answer)
		stdin <- err
	}()
	select {
	case err := <-stdin:
		return figures{}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Whatever ends a command, and whoever stops reading it, its folder is removed, and it
// says that it failed.
func TestACommandLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		deaf   bool // nobody reads what it says
		signal syscall.Signal
		fails  bool
	}{
		"is done":                  {},
		"its reader goes away":     {deaf: true, fails: true},
		"is interrupted":           {signal: syscall.SIGINT, fails: true},
		"is ended":                 {signal: syscall.SIGTERM, fails: true},
		"its terminal goes away":   {signal: syscall.SIGHUP, fails: true},
		"both of these go at once": {deaf: true, signal: syscall.SIGHUP, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = []string{asCommand + "=1", "TMPDIR=" + tmp}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var pipes [4]*os.File
			for i := range 2 {
				if pipes[2*i], pipes[2*i+1], err = os.Pipe(); err != nil {
					t.Fatal(err)
				}
			}
			cmd.Stdout, cmd.Stderr = pipes[1], pipes[3]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said [7]byte
			_, err = pipes[2].Read(said[:])
			if c.deaf {
				err = errors.Join(err, pipes[0].Close(), pipes[2].Close())
			}
			if c.signal != 0 {
				err = errors.Join(err, cmd.Process.Signal(c.signal))
			} else {
				_, failed := in.Write([]byte("on\n"))
				err = errors.Join(err, failed)
			}
			if err != nil || string(said[:]) != "at work" {
				t.Errorf("%q, %v", said, err)
			}
			err = cmd.Wait()
			var status *exec.ExitError
			if failed := errors.As(err, &status); failed != c.fails || failed && status.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
			left, err := os.ReadDir(tmp)
			if err != nil || len(left) != 0 {
				t.Errorf("%v is left, %v", left, err)
			}
			for _, p := range pipes {
				_ = p.Close() // or it is closed already
			}
		})
	}
}
