package session

import (
	"context"
	"io"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// What may wait for the reader. A harness that is ahead by more waits itself:
// back-pressure reaches the model's stream.
const (
	queueEvents = 2 * event.MaxFrameEvents
	queueBytes  = 2 * event.MaxFrameBytes
)

// Next gives the events that are there, in order: at most 64 or 128 KiB, and a
// larger one alone. It waits for the first. After the terminal it is io.EOF; a
// run that could not be ended as the contract wants is protocol, and nobody may
// take it for a success. It is for one reader.
func (r *Run) Next(ctx context.Context) ([]event.Event, error) {
	for {
		events, more, err := r.take()
		if more == nil {
			return events, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fault.From(ctx.Err(), "session.Next")
		}
	}
}

// take gives events, or what to wait for.
func (r *Run) take() (events []event.Event, more <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch events := r.queue.pop(); {
	case len(events) > 0:
		return events, nil, nil
	case !r.queue.ended:
		return nil, r.queue.more.wait(), nil
	case !r.queue.terminated:
		return nil, nil, fault.New(fault.Protocol, "session.Next")
	default:
		return nil, nil, io.EOF
	}
}

// queue holds what was emitted and not read yet. Only full bounds it, and only
// for drafts: the events that close a run always fit.
type queue struct {
	waiting []sized
	bytes   int
	// ended says that nothing more comes; terminated, that the last is a terminal.
	ended, terminated bool
	room, more        signal
}

// sized is an event with its size as JSON.
type sized struct {
	event event.Event
	bytes int
}

func (q *queue) full() bool { return len(q.waiting) >= queueEvents || q.bytes >= queueBytes }

func (q *queue) push(e event.Event, bytes int) {
	q.waiting = append(q.waiting, sized{e, bytes})
	q.bytes += bytes
	q.more.wake()
}

func (q *queue) close(terminated bool) {
	q.ended, q.terminated = true, terminated
	q.more.wake()
	q.room.wake()
}

// pop takes what fits a frame.
func (q *queue) pop() []event.Event {
	var out []event.Event
	bytes := 0
	for _, s := range q.waiting {
		if len(out) == event.MaxFrameEvents || len(out) > 0 && bytes+s.bytes > event.MaxFrameBytes {
			break
		}
		out, bytes = append(out, s.event), bytes+s.bytes
	}
	if len(out) > 0 {
		rest := q.waiting[len(out):]
		clear(q.waiting[:len(out)]) // what was read must not stay in memory
		q.waiting = append(q.waiting[:0:0], rest...)
		q.bytes -= bytes
		q.room.wake()
	}
	return out
}

// signal wakes all that wait for it, once.
type signal struct{ c chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
