package certify

import (
	"context"
	"errors"
)

// containment has a run go on for longer than it may, beside one that works.
func containment(ctx context.Context, w *world, l *ledger) {
	l.holds("a run that does not end is ended at its deadline, a neighbour works on meanwhile, and its conversation goes on", w.endless(ctx))
	l.notRun("memory, processes, storage and processor time are bounded",
		"not part of certification yet: `make test` does (tests/escape, TestAnAttackIsContained; pkg/cgroup, TestLimitAloneHolds)")
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
