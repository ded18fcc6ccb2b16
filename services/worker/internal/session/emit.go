package session

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// Emit judges a draft and puts it into the stream. It waits for room first, so
// that an event that has a sequence is also sent. It may be called by several
// goroutines at once. Errors: protocol for a draft that breaks the lifecycle,
// which ends the run whether the harness looks at the error or not; protocol for
// one that comes after the commit; cancelled and deadline_exceeded.
func (r *Run) Emit(ctx context.Context, d event.Draft) error {
	const op = "session.Emit"
	for {
		room, err := r.offer(d)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fault.From(ctx.Err(), op)
		case <-r.ctx.Done():
			return fault.From(r.ctx.Err(), op)
		}
	}
}

// offer takes a draft, or gives what to wait for before it can be taken.
func (r *Run) offer(d event.Draft) (room <-chan struct{}, err error) {
	const op = "session.Emit"
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.queue.ended:
		return nil, fault.Wrap(errors.New("draft after the run"), fault.Protocol, op)
	case r.broken != nil:
		return nil, r.broken
	case r.ctx.Err() != nil:
		return nil, fault.From(r.ctx.Err(), op)
	case r.head != headStands:
		return nil, fault.Wrap(errors.New("draft after the commit"), fault.Protocol, op)
	case event.IsEmptyDelta(d.Data):
		return nil, nil
	case r.queue.full():
		return r.queue.room.wait(), nil
	}
	switch d := d.Data.(type) { // a call ends after what it let work
	case event.ToolFinished:
		r.closeNest(d.ToolCallID)
	case event.ToolError:
		r.closeNest(d.ToolCallID)
	}
	e := r.machine.Stamp(d, r.cfg.Now().UTC())
	if e.Type().Terminal() {
		err = errors.New("draft of a terminal")
	} else {
		err = r.accept(e)
	}
	if err != nil {
		r.broken = fault.Wrap(err, fault.Protocol, op)
		r.end()
		return nil, r.broken
	}
	return nil, nil
}

// accept takes an event into the run and its stream.
func (r *Run) accept(e event.Event) error {
	before := r.machine.Bytes()
	if err := r.machine.Accept(e); err != nil {
		return err
	}
	r.effects.see(e.Data, r.brokered)
	r.queue.push(e, r.machine.Bytes()-before)
	return nil
}
