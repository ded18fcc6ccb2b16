package certify

import (
	"context"
	"crypto/rand"
	"debug/buildinfo"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// commits is how often the state facade is killed around a commit.
const commits = 6

// commit is how a turn ended during which the state facade was killed.
type commit struct {
	Ending string
	// Known says that the next turn knows what was said in it, and Earlier that it knows
	// what all the turns before it that were acknowledged have said.
	Known, Earlier bool
}

// threads restores a conversation, and makes the fate of commits uncertain.
func threads(ctx context.Context, w *world, l *ledger) {
	const restore = "what was committed is known in another sandbox, and nothing else is needed for it"
	if has, why := w.target.has("thread.eviction_restore"); has {
		s, err := w.betweenTurns(ctx)
		if err == nil {
			err = judgeSuccession(s)
		}
		l.holds(restore, err)
	} else {
		l.notApplicable(restore, why)
	}
	const ambiguous = "while the state facade is killed, a turn that is acknowledged is kept, and one that is not is not made up"
	if has, why := w.target.has("thread.durable_commit"); !has {
		l.notApplicable(ambiguous, why)
		return
	}
	all, err := w.ambiguous(ctx)
	if err == nil {
		err = judgeCommits(all)
	}
	finished := 0
	for _, c := range all {
		if c.Ending == "run.finished" {
			finished++
		}
	}
	l.figure("commits", float64(len(all)))
	l.figure("acknowledged", float64(finished))
	l.holds(ambiguous, err)
	w.atEachPoint(ctx, l)
}

// points are those of the state facade that every commit comes to.
func points() []failpoint.Point {
	return []failpoint.Point{failpoint.SnapshotAnnounced, failpoint.SnapshotStaged, failpoint.SnapshotConfirmed, failpoint.HeadAsked, failpoint.HeadMoved}
}

// atEachPoint kills the state facade where it stands in a commit, if it was built so that
// it can be told to stop there.
func (w *world) atEachPoint(ctx context.Context, l *ledger) {
	const name = "the state facade is killed at each point of a commit, and what is said of the turn is true"
	stops, err := stoppable(filepath.Join(filepath.Dir(w.cfg.Command), "statefacade"))
	if err != nil {
		l.holds(name, err)
		return
	}
	if !stops {
		l.notRun(name, "programs as they are shipped cannot be stopped at a point of their code: `make failpoints`, and --bin-dir bin/failpoint")
		return
	}
	var all []commit
	c := w.talk(plain)
	for _, point := range points() {
		seen, failed := w.killedAt(ctx, c, point)
		if err = failed; err != nil {
			err = fmt.Errorf("%s: %w", point, err)
			break
		}
		all = append(all, seen)
	}
	if err == nil {
		err = judgeCommits(all)
	}
	l.figure("points", float64(len(all)))
	l.holds(name, err)
}

// stoppable says whether a program was built with the points of pkg/failpoint.
func stoppable(program string) (bool, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "failpoint")
	}), nil
}

// killedAt has the state facade stop at a point, and kills it there.
func (w *world) killedAt(ctx context.Context, c *talk, point failpoint.Point) (seen commit, err error) {
	mark := "mark-" + strings.ToLower(rand.Text())
	if _, err := c.patiently(ctx, say("before")); err != nil {
		return seen, err
	}
	p, err := w.Program("statefacade")
	if err != nil {
		return seen, err
	}
	run, err := c.begin(ctx, say(mark))
	if err != nil {
		return seen, err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Sent again: one that comes while the program starts may be lost.
	err = stack.Until(wait, func() (bool, error) {
		if err := syscall.Kill(p.PID, point.Signal()); err != nil {
			return false, err
		}
		ignored, err := procs.Ignored(p.PID)
		return err == nil && ignored.Has(point.Signal()), err
	})
	if err != nil {
		return seen, fmt.Errorf("it does not stop there: %w", errors.Join(err, w.cancel(ctx, run.RunID)))
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		return seen, err
	}
	r, err := w.end(ctx, 0, run)
	if err == nil {
		err = w.back(ctx, "statefacade")
	}
	if err != nil {
		return seen, err
	}
	next, err := c.patiently(ctx, recall())
	return commit{r.ending(), strings.Contains(next.text(), mark), true}, err
}

func (w *world) ambiguous(ctx context.Context) (all []commit, err error) {
	c := w.talk(plain)
	var kept []string
	for range commits {
		mark := "mark-" + strings.ToLower(rand.Text())
		if _, err := c.patiently(ctx, say("before")); err != nil {
			return all, err
		}
		run, err := c.begin(ctx, say(mark))
		if err != nil {
			return all, err
		}
		if err := w.speaks(ctx, 0, run.RunID); err != nil {
			return all, err
		}
		if !w.KillOne("statefacade", syscall.SIGKILL) {
			return all, errors.New("there is no state facade to be killed")
		}
		r, err := w.end(ctx, 0, run)
		if err != nil {
			return all, err
		}
		if err := w.back(ctx, "statefacade"); err != nil {
			return all, err
		}
		next, err := c.patiently(ctx, recall())
		if err != nil {
			return all, err
		}
		seen := commit{r.ending(), strings.Contains(next.text(), mark), true}
		for _, earlier := range kept {
			seen.Earlier = seen.Earlier && strings.Contains(next.text(), earlier)
		}
		if seen.Ending == "run.finished" {
			kept = append(kept, mark)
		}
		all = append(all, seen)
	}
	return all, nil
}

// back waits until a program runs again.
func (w *world) back(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return stack.Until(ctx, func() (bool, error) {
		_, err := w.Program(program)
		return err == nil, err
	})
}

// judgeCommits sees that what a turn ended as is what became of it.
func judgeCommits(all []commit) error {
	var errs []error
	for i, c := range all {
		switch {
		case !c.Earlier:
			errs = append(errs, fmt.Errorf("after turn %d an earlier one that was acknowledged is lost", i))
		case c.Ending == "run.finished" && !c.Known:
			errs = append(errs, fmt.Errorf("turn %d was acknowledged and is lost", i))
		case c.Ending != "run.finished" && c.Ending != "run.error thread_durability_uncertain" && c.Known:
			errs = append(errs, fmt.Errorf("turn %d ended as %s and is known nevertheless", i, c.Ending))
		}
	}
	if len(all) == 0 {
		errs = append(errs, errors.New("no commit was made"))
	}
	return errors.Join(errs...)
}
