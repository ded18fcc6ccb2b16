package certify

import (
	"context"
	"errors"
	"fmt"

	"cofferdam.dev/tests/internal/apiclient"
)

// reuse goes on with a conversation by one replica after the other.
func reuse(ctx context.Context, w *world, l *ledger) {
	const turns = 4
	c := w.talk(plain)
	var seats []seat
	var err error
	for i := 0; i < turns && err == nil; i++ {
		var s seat
		if s, err = w.turnAt(ctx, c, i); err == nil {
			seats = append(seats, s)
		}
	}
	l.figure("turns", float64(len(seats)))
	if err == nil {
		err = judgeReuse(seats)
	}
	l.holds("the turns of a conversation meet the same worker, whichever replica begins them", err)
	l.holds("a run is read and cancelled by a replica that does not drive it", w.otherReplica(ctx))
}

func (w *world) turnAt(ctx context.Context, c *talk, replica int) (seat, error) {
	run, err := c.at(ctx, replica, apiclient.Start{Message: w.phrase.script(say("here"))})
	if err != nil {
		return seat{}, err
	}
	if _, err := w.finish(ctx, replica+1, run); err != nil {
		return seat{}, err
	}
	s, _, err := w.seat(ctx, run.BindingID)
	return s, err
}

// judgeReuse sees that all turns had one seat.
func judgeReuse(seats []seat) error {
	if len(seats) < 2 {
		return errors.New("a single turn: nothing is shown")
	}
	for i, s := range seats {
		if s != seats[0] || !s.Alive {
			return fmt.Errorf("turn %d was at %+v, the first one at %+v", i, s, seats[0])
		}
	}
	return nil
}

func (w *world) otherReplica(ctx context.Context) error {
	c := w.talk(plain)
	run, err := c.begin(ctx, say("before"), busy(), say("after"))
	if err != nil {
		return err
	}
	if err := w.speaks(ctx, 1, run.RunID); err != nil {
		return errors.Join(err, w.cancel(ctx, run.RunID))
	}
	got, err := w.users[1].Cancel(ctx, run.RunID)
	if err != nil || !got.Cancelled || !got.Confirmed {
		return fmt.Errorf("the cancel was answered %+v, %w", got, errors.Join(err, w.cancel(ctx, run.RunID)))
	}
	var ends []string
	for i := range w.users {
		r, err := w.end(ctx, i, run)
		if err != nil {
			return err
		}
		ends = append(ends, r.ending())
	}
	return judgeEnds(ends, "run.cancelled client_request")
}

// judgeEnds sees that every reader was told the one end.
func judgeEnds(ends []string, want string) error {
	for i, end := range ends {
		if end != want {
			return fmt.Errorf("reader %d was told %s, want %s", i, end, want)
		}
	}
	if len(ends) == 0 {
		return errors.New("nobody was told an end")
	}
	return nil
}
