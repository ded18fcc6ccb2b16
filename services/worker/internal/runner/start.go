//go:build linux

package runner

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start starts the program of a request. What is left of the one before is
// killed. The streams are the program's from then on, or closed.
func (w *world) start(ctx context.Context, r *runnerproto.Start, stdin, stdout net.Conn) (_ *program, err error) {
	defer func() {
		if err != nil {
			_ = stdin.Close() // nothing was sent, and the error says more
			_ = stdout.Close()
		}
	}()
	if err := w.enter(ctx); err != nil {
		return nil, err
	}
	defer w.leave()
	// One that was taken back does not begin: whoever killed everything since relies
	// on it.
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if w.quiet > 0 {
		return nil, errBusy()
	}
	if w.program != nil && w.program.running() {
		return nil, runnerproto.Fail(nil, runnerproto.Running, "a program runs")
	}
	w.unfreeze()
	if err := w.killer.everything(); err != nil {
		return nil, runnerproto.Fail(err, runnerproto.Internal, "processes of the program before are left")
	}
	if w.program != nil {
		w.program.close() // what of its output nobody has read is not wanted
		w.program = nil
	}
	env := w.environment(r.Env)
	dir, err := w.directory(r.Dir)
	if err != nil {
		return nil, err
	}
	file, err := find(r.Path, env, dir)
	if err != nil {
		return nil, err
	}
	p, err := w.launch(file, append([]string{r.Path}, r.Args...), env, dir, stdin, stdout)
	if err != nil {
		return nil, err
	}
	w.program = p
	return p, nil
}

// environment is the given one, and what every program needs.
func (w *world) environment(given []string) []string {
	env := slices.Clone(given)
	for _, v := range [][2]string{{"HOME", w.cfg.Home}, {"TMPDIR", w.cfg.Temp}, {"PATH", defaultPath}, {"USER", "agent"}} {
		if _, ok := lookup(given, v[0]); !ok {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

// lookup finds the last value of a name, as most programs do.
func lookup(env []string, name string) (string, bool) {
	for _, v := range slices.Backward(env) {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			return rest, true
		}
	}
	return "", false
}

// directory is where the program starts: the workspace, or an absolute path, in
// the contract's words or this world's.
func (w *world) directory(dir string) (string, error) {
	if dir == "" {
		return w.cfg.Workspace, nil
	}
	if !filepath.IsAbs(dir) {
		return "", unstartable(nil, "the folder to start in is not an absolute path")
	}
	if root, rel, ok := w.within(dir); ok {
		dir = filepath.Join(root.Name(), rel)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", unstartable(err, "the folder to start in is none")
	}
	return dir, nil
}

// within finds the program's folder that a path is in, and the rest of the path,
// "." for the folder itself. Paths are this world's, or the contract's, which are
// the same but for a runner without a file system of its own.
func (w *world) within(p string) (*os.Root, string, bool) {
	p = path.Clean(p)
	roots := []*os.Root{w.home, w.workspace, w.temp}
	for i, top := range []string{w.cfg.Home, w.cfg.Workspace, w.cfg.Temp, hosted.Home, hosted.Workspace, hosted.Temp} {
		if rest, ok := strings.CutPrefix(p+"/", top+"/"); ok {
			return roots[i%len(roots)], path.Clean(rest), true
		}
	}
	return nil, "", false
}

// find finds the program's file: an absolute path, or a name on the PATH.
func find(name string, env []string, dir string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if name == "" || strings.Contains(name, "/") {
		return "", unstartable(nil, "the program is neither an absolute path nor a name")
	}
	search, _ := lookup(env, "PATH")
	for _, folder := range filepath.SplitList(search) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", unstartable(fs.ErrNotExist, "the program is not on the PATH")
}

func unstartable(cause error, detail string) error {
	return runnerproto.Fail(cause, runnerproto.Options, detail)
}

// launch makes the process.
func (w *world) launch(file string, args, env []string, dir string, stdin, stdout net.Conn) (*program, error) {
	ends, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer ends.closeTheirs()
	since := w.limits.counts()
	pid, ended, err := w.reap.Start(func() (int, error) {
		return w.spawn.run(file, args, &syscall.ProcAttr{
			Dir: dir, Env: env, Files: ends.theirs(),
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: w.credential()},
		})
	})
	if err != nil {
		ends.closeOurs()
		return nil, launchError(err)
	}
	w.started++
	p := &program{id: w.started, pid: pid, world: w, since: since, pipes: ends, in: stdin, out: stdout, done: make(chan struct{})}
	p.run(ended)
	return p, nil
}

func (w *world) credential() *syscall.Credential {
	if !w.owner.Apart {
		return nil
	}
	return &syscall.Credential{Uid: uint32(w.owner.UID), Gid: uint32(w.owner.GID)} //nolint:gosec // validated
}

func launchError(err error) error {
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return runnerproto.Fail(err, runnerproto.Limit, limitPIDs)
	case errors.Is(err, unix.EPERM): // of the change to the program's user
		return runnerproto.Fail(err, runnerproto.NotReady, "the program's user cannot be taken on")
	default:
		return unstartable(err, "the program cannot be started")
	}
}
