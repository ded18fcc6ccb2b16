//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/reap"
	"cofferdam.dev/services/worker/internal/runner/files"
	"cofferdam.dev/services/worker/internal/runner/proctree"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// freezeTimeout bounds the time until every process has stopped. One that the
// kernel holds longer is taken for one that cannot be frozen.
const freezeTimeout = 10 * time.Second

// world is the processes and folders of one program.
type world struct {
	cfg    Config
	log    *slog.Logger
	owner  files.Owner
	reap   *reap.Reaper
	killer killer
	spawn  *spawner
	limits *limits

	home, workspace, temp *os.Root

	// life is held by what starts, stops or ends processes: one at a time.
	life chan struct{}
	// Under life.
	vigil   *vigil // while the world is frozen
	moved   int    // how often it moved while it was
	quiet   int    // how many rely on that nothing runs
	program *program
	started uint64

	vigils sync.WaitGroup // their ends

	// broken: what a session left could not be removed, so that there is no other.
	broken atomic.Bool

	mu sync.Mutex
	// Under mu, for kill, which waits behind nobody longer than it has to.
	grace        *deadline
	stopFreezing context.CancelFunc
}

func newWorld(cfg Config, log *slog.Logger) (w *world, err error) {
	tree, err := proctree.Open()
	if err != nil {
		return nil, err
	}
	if !tree.Own() {
		if err := cfg.owned(); err != nil {
			return nil, err
		}
	}
	w = &world{cfg: cfg, log: log, life: make(chan struct{}, 1)}
	var outOfTime atomic.Bool // a process was ended for the processor time that it had used
	w.reap = reap.New(func(s unix.WaitStatus) {
		if s.Signaled() && s.Signal() == unix.SIGXCPU {
			outOfTime.Store(true)
		}
	})
	w.owner = files.Owner{UID: cfg.UID, GID: cfg.GID, Apart: canSwitch(cfg.UID, cfg.GID)}
	w.killer = killer{tree: tree, reap: w.reap}
	defer func() {
		if err != nil {
			w.closeFolders()
		}
	}()
	for path, root := range map[string]**os.Root{cfg.Home: &w.home, cfg.Workspace: &w.workspace, cfg.Temp: &w.temp} {
		if *root, err = os.OpenRoot(path); err != nil {
			return nil, err
		}
	}
	if err := w.prepare(); err != nil {
		return nil, err
	}
	w.limits = newLimits(cfg.Limits, []string{cfg.Home, cfg.Workspace, cfg.Temp}, outOfTime.Load)
	w.spawn, err = newSpawner(w.owner.Apart)
	return w, err
}

// close is called when no process is left.
func (w *world) close() {
	w.vigils.Wait()
	w.spawn.close()
	w.closeFolders()
}

func (w *world) closeFolders() {
	for _, root := range []*os.Root{w.home, w.workspace, w.temp} {
		if root != nil {
			_ = root.Close() // was only looked into
		}
	}
}

// describe says what the world is.
func (w *world) describe() *runnerproto.World {
	return &runnerproto.World{
		OwnProcesses: w.killer.tree.Own(), OwnUser: w.owner.Apart, Counters: w.limits.watched(),
		Home: w.cfg.Home, Workspace: w.cfg.Workspace, Temp: w.cfg.Temp,
	}
}

// enter takes life, or fails with ctx.
func (w *world) enter(ctx context.Context) error {
	select {
	case w.life <- struct{}{}:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (w *world) leave() { <-w.life }

func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return runnerproto.Fail(ctx.Err(), runnerproto.DeadlinePast, "")
	}
	return runnerproto.Fail(ctx.Err(), runnerproto.Cancelled, "")
}

// kill ends every process, and returns when none is left.
func (w *world) kill(grace time.Duration) error {
	until := newDeadline(grace)
	defer until.stop()
	w.mu.Lock()
	if w.stopFreezing != nil {
		w.stopFreezing()
	}
	if w.grace != nil {
		w.grace.shorten(grace)
	}
	w.mu.Unlock()
	w.life <- struct{}{}
	defer w.leave()
	return w.killWithin(until, grace)
}

// killWithin is kill under life.
func (w *world) killWithin(until *deadline, grace time.Duration) error {
	w.setGrace(until)
	defer w.setGrace(nil)
	w.unfreeze()
	// What others rely on to stand still does not get to run once more.
	if p := w.program; p != nil && grace > 0 && w.quiet == 0 {
		if err := w.killer.terminate(p.pid, until.passed); err != nil {
			w.log.Warn("program was not asked to end", "error", err)
		}
	}
	if err := w.killer.everything(); err != nil {
		return runnerproto.Fail(err, runnerproto.Internal, "processes are left")
	}
	return nil
}

func (w *world) setGrace(d *deadline) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grace = d
}

// freeze stops every process, and watches that none goes on until thaw or a kill.
func (w *world) freeze(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	if w.vigil != nil { // to stop a process again would hide that it went on
		return w.attend(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	w.mu.Lock()
	w.stopFreezing = cancel
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopFreezing = nil
	}()
	stopped, done, err := w.killer.freeze(ctx.Done())
	if err == nil && done {
		if err = w.watch(ctx, stopped); err == nil {
			return nil
		}
	}
	thaw := w.killer.tree.Signal(unix.SIGCONT)
	if err = errors.Join(err, thaw); err != nil {
		return runnerproto.Fail(err, runnerproto.Internal, "processes cannot be stopped")
	}
	return contextError(ctx)
}

func (w *world) thaw(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	if w.quiet > 0 {
		return errBusy()
	}
	if err := w.attend(ctx); err != nil { // or it would be let go on without anybody knowing
		return err
	}
	w.unfreeze()
	return w.killer.tree.Signal(unix.SIGCONT)
}

func errBusy() error {
	return runnerproto.Fail(nil, runnerproto.BrokenOrder, "an archive is made or unpacked")
}

// hush makes sure that nothing runs until the returned function is called, which
// fails where something did all the same.
func (w *world) hush(ctx context.Context) (func() error, error) {
	if err := w.enter(ctx); err != nil {
		return nil, err
	}
	defer w.leave()
	if err := w.checkQuiet(ctx); err != nil {
		return nil, err
	}
	w.quiet++
	before := w.moved
	return func() error {
		w.life <- struct{}{}
		defer w.leave()
		w.quiet--
		if w.moved != before {
			return moved(nil)
		}
		return w.checkQuiet(ctx)
	}, nil
}

// checkQuiet fails while a process runs unfrozen.
func (w *world) checkQuiet(ctx context.Context) error {
	if err := w.attend(ctx); err != nil {
		return err
	}
	w.reap.Reap()
	found, still, err := w.killer.look()
	if err != nil {
		return err
	}
	if !still || len(found) > 0 && w.vigil == nil {
		empty, err := w.killer.tree.Empty() // a scan that was not whole may have seen the last end
		if err != nil {
			return err
		}
		if !empty {
			return runnerproto.Fail(nil, runnerproto.BrokenOrder, "a process runs")
		}
	}
	return nil
}

// reset ends every process and empties the folders.
func (w *world) reset(ctx context.Context, keepWorkspace bool) error {
	until := newDeadline(0)
	defer until.stop()
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	if w.quiet > 0 {
		return errBusy()
	}
	if err := w.killWithin(until, 0); err != nil {
		return err
	}
	folders := []*os.Root{w.home, w.temp, w.workspace}
	if keepWorkspace {
		folders = folders[:2]
	}
	for _, root := range folders {
		if err := files.Empty(ctx, root); err != nil {
			return fmt.Errorf("empty %s: %w", root.Name(), err)
		}
	}
	return w.prepare()
}

// Modes of the program's folders.
const (
	modePrivate = 0o700
	modeShared  = 0o755
	modeTemp    = 0o777 | os.ModeSticky
)

// prepare gives the folders to the program.
func (w *world) prepare() error {
	return errors.Join(
		files.Prepare(w.home, w.owner, modePrivate),
		files.Prepare(w.workspace, w.owner, modeShared),
		files.Prepare(w.temp, w.owner, modeTemp),
	)
}
