package acp_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
)

// world is a World of plain processes in a folder: what the real one promises,
// without its walls.
type world struct {
	dir string
	// limits that were hit, and the limit that an exit is put down to.
	limits []string
	limit  string
	// noFreeze makes Freeze fail.
	noFreeze bool

	mu       sync.Mutex
	proc     *process
	frozen   bool
	started  []hosted.Command
	archived int
	resets   int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	w.mkdirs(t)
	t.Cleanup(func() {
		if err := w.KillAll(context.WithoutCancel(t.Context()), 0); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) mkdirs(t *testing.T) {
	t.Helper()
	for _, d := range []string{hosted.Home, hosted.Workspace, hosted.Temp} {
		must(t, os.MkdirAll(w.real(d), 0o700))
	}
}

func (w *world) real(p string) string { return filepath.Join(w.dir, p) }

// process is a started program, the leader of a process group.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	done   chan struct{}
	exit   hosted.Exit
}

func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.Reader     { return p.stdout }
func (p *process) Done() <-chan struct{} { return p.done }
func (p *process) Exit() hosted.Exit     { return p.exit }

func (w *world) Start(_ context.Context, c hosted.Command) (hosted.Program, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proc != nil {
		return nil, fault.New(fault.Internal, "world")
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Path, c.Args...) //nolint:noctx // ended by KillAll
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, os.Stderr
	cmd.Dir = w.real(hosted.Workspace)
	cmd.Env = append([]string{"HOME=" + w.real(hosted.Home), "TMPDIR=" + w.real(hosted.Temp), "PATH=/usr/bin:/bin"}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.started = append(w.started, c)
	err = cmd.Start()
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		_, _ = inW.Close(), outR.Close()
		return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, "world")
	}
	p := &process{cmd: cmd, stdin: inW, stdout: outR, done: make(chan struct{})}
	go func() {
		if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); ok {
			p.exit.Code = exit.ExitCode()
			if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
				p.exit.Signal = s.Signal().String()
			}
		}
		p.exit.Limit = w.limit
		close(p.done)
	}()
	w.proc = p
	return p, nil
}

func (w *world) KillAll(_ context.Context, grace time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.proc
	if p == nil {
		return nil
	}
	w.signal(syscall.SIGCONT)
	w.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	w.signal(syscall.SIGKILL)
	<-p.done
	w.proc, w.frozen = nil, false
	return nil
}

func (w *world) signal(s syscall.Signal) { _ = syscall.Kill(-w.proc.cmd.Process.Pid, s) } // may be gone

func (w *world) Freeze(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noFreeze {
		return errors.New("cannot freeze")
	}
	w.signal(syscall.SIGSTOP)
	w.frozen = true
	return nil
}

func (w *world) Thaw(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signal(syscall.SIGCONT)
	w.frozen = false
	return nil
}

func (w *world) WriteFile(_ context.Context, f hosted.File, content io.Reader) error {
	if !strings.HasPrefix(f.Path, hosted.Home+"/") && !strings.HasPrefix(f.Path, hosted.Workspace+"/") {
		return fault.New(fault.InvalidRequest, "world")
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(w.real(f.Path)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(w.real(f.Path), data, 0o600)
}

func (w *world) Archive(_ context.Context, p hosted.Paths, maxBytes int, out io.Writer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proc != nil && !w.frozen {
		return fault.New(fault.Protocol, "world")
	}
	w.archived++
	var size counting
	z := gzip.NewWriter(io.MultiWriter(&size, out))
	a := tar.NewWriter(z)
	home := w.real(hosted.Home)
	err := filepath.WalkDir(home, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(home, name)
		if err != nil || !within(p.Include, rel) || within(p.Exclude, rel) {
			return err
		}
		data, err := os.ReadFile(name) //nolint:gosec // a test's own folder
		if err != nil {
			return err
		}
		if err := a.WriteHeader(&tar.Header{Name: rel, Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = a.Write(data)
		return err
	})
	err = errors.Join(err, a.Close(), z.Close())
	if err == nil && int(size) > maxBytes {
		err = fault.New(fault.StateTooLarge, "world")
	}
	return err
}

type counting int

func (c *counting) Write(p []byte) (int, error) {
	*c += counting(len(p))
	return len(p), nil
}

func within(patterns []string, rel string) bool {
	for p := rel; p != "."; p = path.Dir(p) {
		for _, pattern := range patterns {
			if ok, err := path.Match(pattern, p); ok && err == nil {
				return true
			}
		}
	}
	return false
}

func (w *world) Restore(_ context.Context, archive io.Reader) error {
	z, err := gzip.NewReader(archive)
	if err != nil {
		return fault.Wrap(err, fault.PersistenceFailed, "world")
	}
	a := tar.NewReader(z)
	for {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(w.real(hosted.Home), filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(a, 1<<20))
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
}

func (w *world) Reset(ctx context.Context) error {
	return w.empty(ctx, hosted.Home, hosted.Workspace, hosted.Temp)
}

func (w *world) ResetHome(ctx context.Context) error { return w.empty(ctx, hosted.Home, hosted.Temp) }

func (w *world) empty(ctx context.Context, folders ...string) error {
	if err := w.KillAll(ctx, 0); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resets++
	for _, d := range folders {
		if err := errors.Join(os.RemoveAll(w.real(d)), os.MkdirAll(w.real(d), 0o700)); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Limits(context.Context) ([]string, error) { return w.limits, nil }

func (w *world) Close() error { return nil }

// running tells whether a process of the world is there.
func (w *world) running() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proc != nil
}
