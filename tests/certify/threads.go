package certify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"

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
	l.notRun("the answer to a commit is lost at each point of it", "programs as they are shipped cannot be killed at a point of their code: `make chaos-state` does")
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
