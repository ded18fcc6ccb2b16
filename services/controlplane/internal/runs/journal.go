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
	// pending are judged and not committed yet: pendingBytes of them, from first on.
	pending      []json.RawMessage
	pendingBytes int
	first        uint64
	// refused is set once the machine has seen what is not in the log.
	refused bool
	// empty counts the deltas of nothing, which count nowhere else.
	empty int
}

// maxEmptyDeltas of a run are dropped; a worker that sends more is broken.
const maxEmptyDeltas = 1000

func newJournal(s *Service, rec binding.Record, run binding.Run) *journal {
	return &journal{s: s, bindingID: rec.ID, runID: run.ID, machine: s.machine(rec, run.ID, run.Carried)}
}

// batchBytes is how much is enough for a batch: with one frame more, and all that
// JSON may add to it, it is still within the bound of a write.
const (
	batchBytes  = 256 << 10
	batchEvents = binding.MaxBatchEvents - event.MaxFrameEvents
)

// judge takes a frame's events into the next batch, all or none of them. A terminal
// is accepted but not appended: it goes into the log with the decision that it agrees
// with. What the frame has behind it comes too late, and late says how many that are.
// More than fit a frame are no frame of the protocol; one event alone may be larger.
// Error: protocol.
func (j *journal) judge(events []event.Event) (terminal event.Data, late int, err error) {
	defer func() { j.refused = j.refused || err != nil }()
	var raws []json.RawMessage
	bytes, first := 0, uint64(0)
	for i, e := range events {
		if e.Type().Terminal() {
			if err := j.machine.Check(e); err != nil {
				return nil, 0, fault.Wrap(err, fault.Protocol, "runs.judge")
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
			return nil, 0, fault.Wrap(err, fault.Protocol, "runs.judge")
		}
		raw, err := encode(e)
		if err != nil {
			return nil, 0, err
		}
		if len(raws) == 0 {
			first = e.Sequence
		}
		raws, bytes = append(raws, raw), bytes+len(raw)
	}
	if len(raws) > 1 && bytes > event.MaxFrameBytes {
		return nil, 0, fault.New(fault.Protocol, "runs.judge", fault.Detail("a frame is larger than its bound"))
	}
	if len(j.pending) == 0 {
		j.first = first
	}
	j.pending, j.pendingBytes = append(j.pending, raws...), j.pendingBytes+bytes
	return terminal, late, nil
}

// committed gives the machine, once, if it has seen what is in the log up to head and
// nothing else; otherwise nil.
func (j *journal) committed(head uint64) *event.Machine {
	m := j.machine
	if j.machine = nil; j.refused || m == nil || m.Next() != head {
		return nil
	}
	return m
}

// full says that what is pending is enough for a batch.
func (j *journal) full() bool {
	return j.pendingBytes >= batchBytes || len(j.pending) >= batchEvents
}

// flush commits what is pending. Errors: stale_lease, binding.ErrEnded.
func (j *journal) flush(ctx context.Context, g fence.Grant) error {
	if len(j.pending) == 0 {
		return nil
	}
	b := binding.Batch{Nonce: rand.Text(), First: j.first, Events: j.pending}
	j.pending, j.pendingBytes = nil, 0
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
			j.s.hub.appended(j.runID, b)
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

// encode is not json.Marshal, which escapes and so lengthens an event.
func encode(e event.Event) (json.RawMessage, error) {
	raw, err := event.Encode(e)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("encode event: %w", err), fault.Internal, "runs.encode")
	}
	return raw, nil
}
