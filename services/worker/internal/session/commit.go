package session

import (
	"crypto/sha256"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// head is what is known of the head that a run commits.
type head int

const (
	// headStands: no commit was begun.
	headStands head = iota
	// headCovered: a commit covers what was emitted, and its outcome is not known.
	// Nothing but the terminal may follow.
	headCovered
	// headMoved: it was committed, and the run ends as cancelled all the same.
	headMoved
	// headCommitted and headInterrupted: it was committed, and decides how the run
	// ends.
	headCommitted
	headInterrupted
)

// CommitPoint ties a head commit to the stream: what the head covers, and what
// became of it.
type CommitPoint interface {
	// Cover gives the sequence of the last event, which the head is to cover.
	// From then on nothing but the terminal may be emitted. Errors: protocol where
	// something is open, so that the run could not finish; cancelled and
	// deadline_exceeded.
	Cover() (lastSequence uint64, err error)
	// CoverInterrupt is Cover for a run that is to end as interrupted, and gives
	// what it asked. Errors: protocol also where it asked nothing.
	CoverInterrupt() (lastSequence uint64, asked event.InterruptRequested, err error)
	// Committed says that the head has moved and that the run ends as success.
	Committed()
	// Interrupted says that the head has moved to the revision, with the interrupt,
	// and that the run ends as interrupted.
	Interrupted(revision uint64)
	// Moved says that the head has moved, with no interrupt, and that the run ends
	// as cancelled all the same.
	Moved()
}

// Cover implements CommitPoint.
func (r *Run) Cover() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cover(event.RunFinished{StopReason: unknownStopReason})
}

// CoverInterrupt implements CommitPoint.
func (r *Run) CoverInterrupt() (uint64, event.InterruptRequested, error) {
	const op = "session.CoverInterrupt"
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, ok := r.machine.Interrupt()
	if !ok {
		return 0, asked, fault.Wrap(errors.New("an interrupt that asks nothing"), fault.Protocol, op)
	}
	body, err := event.InterruptBody(asked)
	if err != nil {
		return 0, asked, fault.Wrap(err, fault.Protocol, op)
	}
	last, err := r.cover(interrupted(asked))
	if err == nil {
		r.asked, r.askedHash = asked, sha256.Sum256(body)
	}
	return last, asked, err
}

// cover covers what was emitted, if the run could end like this now.
func (r *Run) cover(end event.Data) (uint64, error) {
	const op = "session.Cover"
	if r.queue.ended {
		return 0, fault.Wrap(errors.New("commit after the run"), fault.Protocol, op)
	}
	if r.ctx.Err() != nil {
		return 0, fault.From(r.ctx.Err(), op)
	}
	if err := r.machine.Check(r.machine.Stamp(event.Draft{Data: end}, r.cfg.Now().UTC())); err != nil {
		return 0, fault.Wrap(err, fault.Protocol, op)
	}
	r.head = max(r.head, headCovered)
	return r.machine.Next() - 1, nil
}

// Committed implements CommitPoint.
func (r *Run) Committed() { r.became(headCommitted, 0) }

// Interrupted implements CommitPoint.
func (r *Run) Interrupted(revision uint64) { r.became(headInterrupted, revision) }

// Moved implements CommitPoint.
func (r *Run) Moved() { r.became(headMoved, 0) }

func (r *Run) became(h head, revision uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.ended { // its terminal is out; what it knows of the head stays unknown
		return
	}
	r.head, r.revision = h, revision
}

// interrupt is the summary of what the run committed as pending.
func (r *Run) interrupt() Interrupt {
	return Interrupt{ID: r.asked.InterruptID, Type: r.asked.InterruptType, Revision: r.revision}
}

func interrupted(asked event.InterruptRequested) event.RunInterrupted {
	return event.RunInterrupted{InterruptID: asked.InterruptID, Reason: asked.InterruptType.Reason()}
}
