package runs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// journal judges a worker's events a second time and appends them to the
// committed log.
type journal struct {
	s         *Service
	bindingID string
	runID     string
	machine   *event.Machine
	// empty counts the deltas of nothing, which count nowhere else.
	empty int
}

// maxEmptyDeltas of a run are dropped; a worker that sends more is broken.
const maxEmptyDeltas = 1000

func newJournal(s *Service, rec binding.Record, run binding.Run) *journal {
	return &journal{s: s, bindingID: rec.ID, runID: run.ID, machine: s.machine(rec, run.ID, run.Carried)}
}

// take commits a frame's events. A terminal is accepted but not appended: it
// goes into the log with the decision that it agrees with. What the frame has
// behind it comes too late, and late says how many that are. Errors: protocol,
// stale_lease, binding.ErrEnded.
func (j *journal) take(ctx context.Context, g fence.Grant, events []event.Event) (terminal event.Data, late int, err error) {
	var batch []event.Event
	for i, e := range events {
		if e.Type().Terminal() {
			if err := j.machine.Check(e); err != nil {
				return nil, 0, fault.Wrap(err, fault.Protocol, "runs.take")
			}
			terminal, late = e.Data, len(events)-i-1
			break
		}
		err := j.machine.Accept(e)
		if errors.Is(err, event.ErrEmptyDelta) && j.empty < maxEmptyDeltas {
			j.empty++
			continue
		}
		if err != nil {
			return nil, 0, fault.Wrap(err, fault.Protocol, "runs.take")
		}
		batch = append(batch, e)
	}
	if len(batch) == 0 {
		return terminal, late, nil
	}
	return terminal, late, j.commit(ctx, g, batch)
}

// commit appends a frame's events. More than fit a frame are no frame of the
// protocol; one event alone may be larger.
func (j *journal) commit(ctx context.Context, g fence.Grant, events []event.Event) error {
	b, err := encode(events)
	if err != nil {
		return err
	}
	if len(events) > 1 && b.Bytes() > event.MaxFrameBytes {
		return fault.New(fault.Protocol, "runs.commit", fault.Detail("a frame is larger than its bound"))
	}
	return j.append(ctx, g, b)
}

// append repeats a batch whose fate is unknown, unchanged under its nonce,
// until it is settled or the run's time is over.
func (j *journal) append(ctx context.Context, g fence.Grant, b binding.Batch) error {
	failpoint.Reach(failpoint.EventsReceived)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		_, err := j.s.cfg.Writer.Append(ctx, g, j.s.cfg.Owner, b)
		switch {
		case err == nil:
			failpoint.Reach(failpoint.EventsCommitted)
			j.s.hub.grew(j.runID, b.Bytes())
			return nil
		case ctx.Err() != nil:
			return fault.From(ctx.Err(), "runs.append")
		case !fault.Is(err, fault.DependencyUnavailable): // an answer, which another try would not change
			return err
		}
		j.s.cfg.Logger.WarnContext(ctx, "events are not committed yet; trying again", "error", err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func encode(events []event.Event) (binding.Batch, error) {
	b := binding.Batch{Nonce: rand.Text(), First: events[0].Sequence, Events: make([]json.RawMessage, len(events))}
	for i, e := range events {
		raw, err := event.Encode(e) // not json.Marshal, which escapes and so lengthens it
		if err != nil {
			return b, fault.Wrap(fmt.Errorf("encode event: %w", err), fault.Internal, "runs.encode")
		}
		b.Events[i] = raw
	}
	return b, nil
}
