// Package stdiotest has a world of plain processes for tests of hosted programs.
// It is no wall at all: what runs in it can do what the test can.
package stdiotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
)

// World is a hosted.World of plain processes, found again by a mark in their
// environment.
type World struct {
	// Root has the folders of the world: Home is below it, and so on.
	Root string
	mark string

	mu      sync.Mutex
	running *Program
	starts  int
	limit   string
	broken  error
	// requests and messages get what programs read and write.
	requests, messages io.Writer
}

var _ hosted.World = (*World)(nil)

// markName is the variable that every process of a world has.
const markName = "COFFERDAM_TEST_WORLD"

// NewWorld makes a world that ends with the test, and fails the test where a
// process is left then.
func NewWorld(t *testing.T) *World {
	t.Helper()
	w := &World{Root: t.TempDir(), mark: markName + "=" + rand.Text()}
	for _, folder := range []string{hosted.Home, hosted.Workspace, hosted.Temp} {
		if err := os.MkdirAll(w.at(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if pids := w.Processes(); len(pids) > 0 {
			t.Errorf("%d processes are left", len(pids))
		}
		if err := w.KillAll(context.WithoutCancel(t.Context()), 0); err != nil {
			t.Error(err)
		}
	})
	return w
}

// SetLimit makes the next program end by a limit, as far as its Exit says.
func (w *World) SetLimit(limit string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = limit
}

// Break makes every method fail.
func (w *World) Break(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = err
}

// Record gives what programs are sent to requests, and what they write to
// messages. The two are written to by goroutines of their own.
func (w *World) Record(requests, messages io.Writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.messages = requests, messages
}

// Starts is how many programs were started.
func (w *World) Starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

func (w *World) at(path string) string { return filepath.Join(w.Root, path) }

// Start implements hosted.World.
func (w *World) Start(_ context.Context, c hosted.Command) (hosted.Program, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	if w.running != nil && !w.running.ended() {
		return nil, fault.New(fault.Internal, "stdiotest.Start")
	}
	p := &Program{done: make(chan struct{}), limit: w.limit, requests: w.requests, messages: w.messages}
	p.cmd = exec.Command(c.Path, c.Args...) //nolint:noctx // its life is that of no request
	p.cmd.Dir = w.at(hosted.Workspace)
	p.cmd.Env = append([]string{
		w.mark, "HOME=" + w.at(hosted.Home), "TMPDIR=" + w.at(hosted.Temp), "PATH=" + os.Getenv("PATH"), "USER=agent",
	}, c.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.pipes(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fault.Wrap(errors.Join(err, p.theirs[0].Close(), p.theirs[1].Close(), p.stdin.Close(), p.stdout.Close()),
			fault.HarnessOptionsInvalid, "stdiotest.Start")
	}
	w.running, w.starts = p, w.starts+1
	go p.wait()
	return p, errors.Join(p.theirs[0].Close(), p.theirs[1].Close())
}

// KillAll implements hosted.World.
func (w *World) KillAll(ctx context.Context, grace time.Duration) error {
	w.mu.Lock()
	broken, running := w.broken, w.running
	w.mu.Unlock()
	if broken != nil {
		return broken
	}
	if running != nil && grace > 0 && !running.ended() {
		_ = syscall.Kill(-running.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-running.done:
		case <-time.After(grace):
		case <-ctx.Done():
		}
	}
	for {
		pids := w.Processes()
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fault.From(ctx.Err(), "stdiotest.KillAll")
		case <-time.After(time.Millisecond):
		}
	}
	if running != nil {
		<-running.done
	}
	return nil
}

// Processes are the pids of all that run in the world.
func (w *World) Processes() []int { return Processes(w.mark) }

// Processes are those whose environment has the text.
func Processes(mark string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that is gone, or dead and not yet waited for, has none.
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Freeze implements hosted.World.
func (w *World) Freeze(context.Context) error { return w.signal(syscall.SIGSTOP) }

// Thaw implements hosted.World.
func (w *World) Thaw(context.Context) error { return w.signal(syscall.SIGCONT) }

func (w *World) signal(s syscall.Signal) error {
	for _, pid := range w.Processes() {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// WriteFile implements hosted.World.
func (w *World) WriteFile(_ context.Context, f hosted.File, content io.Reader) error {
	if !strings.HasPrefix(f.Path, hosted.Home+"/") && !strings.HasPrefix(f.Path, hosted.Workspace+"/") {
		return fault.New(fault.AccessDenied, "stdiotest.WriteFile")
	}
	mode := os.FileMode(0o600)
	if f.Executable {
		mode = 0o700
	}
	if err := os.MkdirAll(filepath.Dir(w.at(f.Path)), 0o700); err != nil {
		return err
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return os.WriteFile(w.at(f.Path), text, mode)
}

// Archive is not for programs of lines.
func (*World) Archive(context.Context, hosted.Paths, int, io.Writer) error {
	return fault.New(fault.NotImplemented, "stdiotest.Archive")
}

// Restore is not for programs of lines.
func (*World) Restore(context.Context, io.Reader) error {
	return fault.New(fault.NotImplemented, "stdiotest.Restore")
}

// Reset implements hosted.World.
func (w *World) Reset(ctx context.Context) error {
	return w.empty(ctx, hosted.Home, hosted.Workspace, hosted.Temp)
}

// ResetHome implements hosted.World.
func (w *World) ResetHome(ctx context.Context) error { return w.empty(ctx, hosted.Home, hosted.Temp) }

func (w *World) empty(ctx context.Context, folders ...string) error {
	if err := w.KillAll(ctx, 0); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := errors.Join(os.RemoveAll(w.at(folder)), os.MkdirAll(w.at(folder), 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// Limits implements hosted.World.
func (w *World) Limits(context.Context) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nil, w.broken
}

// Close implements hosted.World.
func (*World) Close() error { return nil }

// Program is a hosted.Program.
type Program struct {
	cmd           *exec.Cmd
	stdin, stdout *os.File
	theirs        [2]*os.File
	done          chan struct{}
	limit         string
	exit          hosted.Exit

	requests, messages io.Writer
}

func (p *Program) pipes() error {
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return errors.Join(err, in.Close(), stdin.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout = in, out
	p.stdin, p.stdout, p.theirs = stdin, stdout, [2]*os.File{in, out}
	return nil
}

func (p *Program) wait() {
	defer close(p.done)
	_ = p.cmd.Wait() // the state says how it ended
	p.exit = hosted.Exit{Code: p.cmd.ProcessState.ExitCode(), Limit: p.limit}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal = ws.Signal().String()
	}
}

func (p *Program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stdin implements hosted.Program.
func (p *Program) Stdin() io.WriteCloser {
	if p.requests == nil {
		return p.stdin
	}
	return recordedInput{p.stdin, p.requests}
}

// recordedInput writes everything twice.
type recordedInput struct {
	*os.File
	record io.Writer
}

func (r recordedInput) Write(p []byte) (int, error) {
	if _, err := r.record.Write(p); err != nil {
		return 0, err
	}
	return r.File.Write(p)
}

// Stdout implements hosted.Program.
func (p *Program) Stdout() io.Reader {
	if p.messages == nil {
		return p.stdout
	}
	return io.TeeReader(p.stdout, p.messages)
}

// Done implements hosted.Program.
func (p *Program) Done() <-chan struct{} { return p.done }

// Exit implements hosted.Program.
func (p *Program) Exit() hosted.Exit { return p.exit }
