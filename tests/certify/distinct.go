package certify

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// distinct has bindings work at the same time and looks at where each does.
func distinct(ctx context.Context, w *world, l *ledger) {
	seats, err := w.crowd(ctx, w.cfg.Bindings)
	l.figure("bindings", float64(len(seats)))
	if err == nil {
		err = judgeDistinct(seats)
	}
	l.holds("each of the bindings that work at once has a claim, an instance, an identity and a process of its own", err)
}

// crowd gives the seats of n bindings while all of them are in the middle of a run.
func (w *world) crowd(ctx context.Context, n int) ([]seat, error) {
	runs, seats := make([]string, n), make([]seat, n)
	g, inner := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			run, err := w.talk(plain).begin(inner, say("at work"), busy())
			if err != nil {
				return err
			}
			runs[i] = run.RunID
			return w.speaks(inner, 0, run.RunID)
		})
	}
	err := g.Wait()
	for i, id := range runs {
		if id == "" || err != nil {
			continue
		}
		run, runErr := w.users[0].Run(ctx, id)
		if runErr == nil && run.State == "ended" {
			runErr = fmt.Errorf("a run was over before all were at work: %s", run.End)
		}
		if err = runErr; err == nil {
			seats[i], _, err = w.seat(ctx, run.BindingID)
		}
	}
	for _, id := range runs {
		if id != "" {
			err = errors.Join(err, w.cancel(ctx, id))
		}
	}
	return seats, err
}

// judgeDistinct sees that no two bindings share anything that has to be their own.
func judgeDistinct(seats []seat) error {
	if len(seats) < 2 {
		return fmt.Errorf("%d bindings were at work at once: nothing is shown", len(seats))
	}
	var errs []error
	owner := map[string]int{}
	for i, s := range seats {
		if !s.Alive {
			errs = append(errs, fmt.Errorf("binding %d has no process", i))
		}
		for what, value := range map[string]string{
			"binding": s.Binding, "claim": s.Claim, "instance": s.Instance, "identity": s.SPIFFEID, "process": fmt.Sprint(s.PID),
		} {
			key := what + " " + value
			if value == "" || value == "0" {
				errs = append(errs, fmt.Errorf("binding %d has no %s", i, what))
			} else if other, taken := owner[key]; taken {
				errs = append(errs, fmt.Errorf("bindings %d and %d share one %s", other, i, what))
			}
			owner[key] = i
		}
	}
	return errors.Join(errs...)
}
