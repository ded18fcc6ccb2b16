package runs

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
)

// Why an event of a worker is not taken, as it is counted.
const (
	// lateTerminal came after the worker's own terminal.
	lateTerminal = "terminal"
	// lateCancel and lateDeadline came after the run was cancelled, or its time was
	// over; lateEnd after another end was decided.
	lateCancel   = "cancel"
	lateDeadline = "deadline"
	lateEnd      = "end"
	// lateReplacement came from a worker whose lease was replaced, or whose run was
	// taken over.
	lateReplacement = "replacement"
	// lateForeign came from a worker that was not asked.
	lateForeign = "foreign"
)

// lateFor is how long after its terminal a worker is listened to. Whoever ends a
// stream with its terminal keeps nobody waiting.
const lateFor = 250 * time.Millisecond

// lateness says why a frame was not taken, or nothing where it was, or where it was
// not too late but wrong.
func (d *driver) lateness(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, binding.ErrEnded):
		return d.decided(ctx)
	case errors.Is(err, binding.ErrFenced):
		return lateReplacement
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return lateDeadline
	case err != nil && ctx.Err() != nil:
		return lateCancel
	default:
		return ""
	}
}

// decided is the reason that the committed end of the run gives.
func (d *driver) decided(ctx context.Context) string {
	rec, err := d.s.cfg.Writer.Backend().Load(ctx, d.env.BindingID)
	end := endOf(rec, d.env.RunID)
	switch {
	case err != nil || end.Kind != binding.EndCancelling:
		return lateEnd
	case end.Reason == string(event.CancelledByDeadline):
		return lateDeadline
	default:
		return lateCancel
	}
}

// drain counts what a worker sends after its terminal, for a moment: its end is
// written by now, and nothing that comes changes it.
func (d *driver) drain(ctx context.Context) {
	if d.stream == nil {
		return
	}
	stop := time.AfterFunc(lateFor, d.stream.hangUp)
	defer stop.Stop()
	for {
		frame, err := d.stream.Next()
		if err != nil {
			break
		}
		d.drop(ctx, len(frame.Events), lateTerminal)
	}
	if err := ignoreClosed(d.stream.Close()); err != nil {
		d.s.cfg.Logger.WarnContext(ctx, "a worker's stream did not end well after its terminal", "error", err.Error())
	}
}
