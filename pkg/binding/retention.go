package binding

import (
	"context"
	"errors"
	"time"
)

// forgetPage is how many ended runs are looked at at a time.
const forgetPage = 256

// ForgetLogs removes the event logs of runs that ended before the time, for good, and
// says of how many. Their documents stay, and with them how each run ended. The log
// of a run stays in spite of that while the record holds the run, or the interrupt that
// it asked: whoever is to answer has to read the question. It may be called by several
// processes at once, and again after one that was killed. What fails is left for the
// next call, and the others are forgotten.
func (w *Writer) ForgetLogs(ctx context.Context, before time.Time) (forgotten int, err error) {
	const op = "binding.ForgetLogs"
	var errs []error
	for after := (EndedRun{}); ; {
		page, err := w.store.EndedRuns(ctx, before, after, forgetPage)
		if err != nil {
			return forgotten, fail(ctx, errors.Join(append(errs, err)...), op)
		}
		for _, run := range page {
			switch gone, err := w.forgetLog(ctx, run); {
			case err != nil:
				errs = append(errs, err)
			case gone:
				forgotten++
			}
		}
		if len(page) < forgetPage || ctx.Err() != nil {
			return forgotten, fail(ctx, errors.Join(errs...), op)
		}
		after = page[len(page)-1]
	}
}

// forgetLog removes one. A run that ended asks no more: a record that does not wait for
// an answer to it never will.
func (w *Writer) forgetLog(ctx context.Context, run EndedRun) (gone bool, err error) {
	r, err := w.store.Load(ctx, run.BindingID)
	switch {
	case errors.Is(err, ErrNotFound): // nobody can read it
	case err != nil:
		return false, err
	case r.Interrupt != nil && r.Interrupt.RunID == run.RunID:
		return false, nil
	default:
		if held, _ := r.find(run.RunID); held != nil {
			return false, nil
		}
	}
	if err := w.store.ForgetLog(ctx, run.RunID); err != nil {
		return false, err
	}
	return true, nil
}
