package certify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// most is how many times its bound a hog tries to get: where there is none it stops there.
const most = 4

// containment uses up what sandboxes have, beside one that works.
func containment(ctx context.Context, w *world, l *ledger) {
	l.holds("a run that does not end is ended at its deadline, a neighbour works on meanwhile, and its conversation goes on", w.endless(ctx))
	const limits = "memory, processes, storage and processor time are bounded"
	missing, err := cgroup.Probe(ctx)
	switch {
	case os.Geteuid() != 0:
		l.notRun(limits, "what uses them up is put into the control groups of a sandbox: run it as root")
		return
	case err != nil || len(missing) > 0:
		l.notRun(limits, fmt.Sprintf("this machine lacks control groups: %v %v", missing, errors.Join(err)))
		return
	}
	// It need not end of it: then it is cancelled, unless it has done its work.
	survived := []string{"run.error sandbox_limit", "run.cancelled client_request", "run.finished"}
	for _, c := range []struct {
		name string
		play func(context.Context, groups, procs.Process) error
		ends []string
	}{
		{"memory without end ends the run as sandbox_limit", hogMemory, []string{"run.error sandbox_limit"}},
		{"processes without end come to a bound", hogProcesses, survived},
		{"the workspace can be filled, and no more", hogStorage, survived},
		{"processor time is given in shares", hogProcessor, survived},
	} {
		name := c.name + "; a neighbour works on, and the conversation goes on"
		if err := w.hogged(ctx, c.play, c.ends); errors.Is(err, errBusy) {
			l.notRun(name, errBusy.Error())
		} else {
			l.holds(name, err)
		}
	}
}

// hogged plays a hog in the groups of a sandbox in the middle of a run, which then ends,
// by itself or because it is cancelled.
func (w *world) hogged(ctx context.Context, play func(context.Context, groups, procs.Process) error, ends []string) (err error) {
	c := w.talk(tight)
	run, err := c.begin(ctx, say("at work"), busy())
	if err != nil {
		return err
	}
	over := false
	defer func() {
		if !over {
			_, failed := w.users[0].Cancel(ctx, run.RunID)
			err = errors.Join(err, failed)
		}
	}()
	if err := w.speaks(ctx, 0, run.RunID); err != nil {
		return err
	}
	s, _, err := w.seat(ctx, run.BindingID)
	if err != nil {
		return err
	}
	worker, err := procs.Read(s.PID)
	if err != nil {
		return err
	}
	its, err := groupsOf(s.PID)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	played := play(wait, its, worker)
	_, neighbour := w.talk(plain).tell(ctx, say("here"))
	if len(ends) > 1 { // it need not have ended
		if _, err := w.users[0].Cancel(ctx, run.RunID); err != nil {
			return errors.Join(played, neighbour, err)
		}
	}
	r, err := w.end(ctx, 0, run)
	over = err == nil
	if err != nil {
		return errors.Join(played, neighbour, err)
	}
	_, next := c.patiently(ctx, say("again"))
	return errors.Join(played, neighbour, next, judgeOneOf(r.ending(), ends))
}

func judgeOneOf(end string, ends []string) error {
	if slices.Contains(ends, end) {
		return nil
	}
	return fmt.Errorf("the run ended as %q, want one of %q", end, ends)
}

// errBusy says that the machine had not even as much for a hog as its sandbox may have.
var errBusy = errors.New("the machine does too much else for anybody to come to this bound: try it while it is quiet")

// bounded is what came of a hog.
type bounded struct {
	// Bound in the hog's unit, and what it says that it got more than.
	Bound int64
	// End of the hog, as its shell and the kernel say it.
	End string
	// Ends are what an end by the bound looks like.
	Ends []string
}

func judgeBounded(b bounded) error {
	if b.Bound <= 0 {
		return errors.New("there is no bound")
	}
	for _, end := range b.Ends {
		if strings.Contains(b.End, end) {
			return nil
		}
	}
	return fmt.Errorf("with a bound of %d it ended as %q, want one of %q", b.Bound, b.End, b.Ends)
}

// play has a hog in a shell end at a bound.
func (g groups) play(ctx context.Context, controller, script string, ends ...string) error {
	b := bounded{Bound: g.bound(controller), Ends: ends}
	if b.Bound <= 0 {
		return judgeBounded(b)
	}
	h, err := g.hog(ctx, strings.ReplaceAll(script, "MOST", strconv.FormatInt(most*b.Bound, 10)))
	if err != nil {
		return err
	}
	if b.End, err = h.wait(); err != nil {
		return err
	}
	return judgeBounded(b)
}

func hogMemory(ctx context.Context, g groups, _ procs.Process) error {
	return g.play(ctx, "memory", `ulimit -v $((MOST / 1024)); tail /dev/zero`, "killed", "Killed")
}

func hogProcesses(ctx context.Context, g groups, _ procs.Process) error {
	return g.play(ctx, "pids", `i=0; while [ $i -lt MOST ]; do sleep 600 > /dev/null 2>&1 & i=$((i + 1)); done; echo without end`, "ork", "exit status 2", "esource")
}

// hogStorage fills the workspace, from outside and as its owner, the worker or a hosted
// program: what bounds it is its file system.
func hogStorage(ctx context.Context, _ groups, worker procs.Process) error {
	folder := impostor.Inside(worker, "workspace")
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return err
	}
	size := int64(fs.Blocks) * fs.Bsize //nolint:gosec // of a file system of some megabytes
	const largest = 4 << 30
	if size > largest {
		return fmt.Errorf("the workspace has %d bytes, which is no bound", size)
	}
	var its syscall.Stat_t
	if err := syscall.Stat(folder, &its); err != nil {
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // the command has its own
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("dd if=/dev/zero of=/proc/self/fd/3/hog bs=1M count=%d; status=$?; rm -f /proc/self/fd/3/hog; exit $status", size>>20+1))
	cmd.Env, cmd.Stderr, cmd.ExtraFiles = []string{searchPath, "LC_ALL=C"}, &said, []*os.File{dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: its.Uid, Gid: its.Gid}}
	if err := cmd.Run(); err == nil || ctx.Err() != nil {
		return fmt.Errorf("more than %d bytes could be written: %w", size, errors.Join(err, ctx.Err()))
	}
	return judgeBounded(bounded{size, said.String(), []string{"No space left on device"}})
}

// hogProcessor spins until the group has to wait for its next share.
func hogProcessor(ctx context.Context, g groups, _ procs.Process) error {
	b := bounded{Bound: g.bound("cpu"), Ends: []string{"throttled"}}
	if b.Bound <= 0 {
		return judgeBounded(b)
	}
	before := g.throttled()
	h, err := g.hog(ctx, `for i in 1 2 3 4; do while :; do :; done & done; wait`)
	if err != nil {
		return err
	}
	if stack.Until(ctx, func() (bool, error) { return g.throttled() > before, nil }) == nil {
		b.End = "throttled"
	}
	if err := h.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_, err = h.wait()
	if b.End == "" && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
		return errBusy
	}
	return errors.Join(err, judgeBounded(b))
}

func (w *world) endless(ctx context.Context) error {
	c := w.talk(hasty)
	run, err := c.begin(ctx, say("at work"), busy())
	if err != nil {
		return err
	}
	_, neighbour := w.talk(plain).tell(ctx, say("here"))
	r, err := w.end(ctx, 0, run)
	if err != nil {
		return errors.Join(err, neighbour)
	}
	_, next := c.patiently(ctx, say("again"))
	return errors.Join(judgeEnds([]string{r.ending()}, "run.cancelled deadline"), neighbour, next)
}
