package certify

import (
	"context"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/tests/internal/apiclient"
)

// streams reads runs as lawful, slow and departing readers do.
func streams(ctx context.Context, w *world, l *ledger) {
	r, slow, err := w.readAll(ctx)
	if err == nil {
		err = judgeCanonical(r)
	}
	l.holds("every event of a run with a tool call keeps the rules of Canonical Events v1, in order", err)
	if err == nil {
		l.holds("a reader that does not read holds nobody up, and gets the same in the end", judgeSame(r.events, slow))
		l.figure("events", float64(len(r.events)))
	}
	l.holds("a cancelled run has one end, and the conversation goes on", w.cancelled(ctx))
	l.holds("a run whose only reader goes away is cancelled where its client said so", w.deserted(ctx))
}

// readAll has one reader that reads, and one that begins to when the run is over.
func (w *world) readAll(ctx context.Context) (r turn, slow []apiclient.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := w.talk(plain)
	run, err := c.begin(ctx, repeat(400, "word"), list())
	if err != nil {
		return r, nil, err
	}
	late, err := w.users[1].Stream(ctx, run.RunID, nil)
	if err != nil {
		return r, nil, err
	}
	defer func() { _ = late.Close() }() // it was read
	if r, err = w.finish(ctx, 0, run); err != nil {
		return r, nil, err
	}
	r.conversation = c.conversation
	slow, err = late.Rest()
	return r, slow, err
}

// judgeCanonical has the events judged by the machine of the contract.
func judgeCanonical(r turn) error {
	m := event.NewMachine(r.RunID, r.conversation, event.Bounds{})
	tools := 0
	for i, raw := range r.events {
		e, err := event.Decode(raw.Raw, event.Bounds{})
		if err == nil {
			err = m.Accept(e)
		}
		if err != nil {
			return fmt.Errorf("event %d, %s: %w", i, raw.Type, err)
		}
		if raw.Type == "tool.finished" {
			tools++
		}
	}
	switch {
	case len(r.events) == 0 || r.events[0].Type != "run.started":
		return errors.New("the log does not begin with run.started")
	case !r.events[len(r.events)-1].Terminal():
		return errors.New("the log has no terminal")
	case tools == 0:
		return errors.New("no tool call was seen to finish")
	}
	return nil
}

// judgeSame compares what two readers read, byte by byte.
func judgeSame(one, other []apiclient.Event) error {
	if len(one) != len(other) || len(one) == 0 {
		return fmt.Errorf("one reader read %d events and another one %d", len(one), len(other))
	}
	for i := range one {
		if string(one[i].Raw) != string(other[i].Raw) {
			return fmt.Errorf("two readers read different texts as event %d, %s and %s", i, one[i].Type, other[i].Type)
		}
	}
	return nil
}

func (w *world) cancelled(ctx context.Context) error {
	c := w.talk(plain)
	run, err := c.begin(ctx, say("before"), busy(), say("after"))
	if err != nil {
		return err
	}
	if err := w.speaks(ctx, 0, run.RunID); err != nil {
		return errors.Join(err, w.cancel(ctx, run.RunID))
	}
	for range 2 { // it can be repeated
		if err := w.cancel(ctx, run.RunID); err != nil {
			return err
		}
	}
	r, err := w.end(ctx, 0, run)
	if err == nil {
		err = judgeEnds([]string{r.ending()}, "run.cancelled client_request")
	}
	if err == nil {
		_, err = c.tell(ctx, say("again"))
	}
	return err
}

func (w *world) deserted(ctx context.Context) error {
	c := w.talk(plain)
	run, err := c.at(ctx, 0, apiclient.Start{Message: w.phrase.script(say("before"), busy(), say("after")), OnDisconnect: "cancel"})
	if err != nil {
		return err
	}
	if err := w.speaks(ctx, 0, run.RunID); err != nil { // which goes away when it has
		return errors.Join(err, w.cancel(ctx, run.RunID))
	}
	// A look at its status is no reader.
	end, err := w.terminal(ctx, run)
	if err != nil {
		return errors.Join(err, w.cancel(ctx, run.RunID))
	}
	return judgeEnds([]string{end}, "run.cancelled disconnect")
}
