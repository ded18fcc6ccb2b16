package session

import (
	"crypto/sha256"
	"slices"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// Interrupt is the summary of a pending interrupt: nothing of it is private to a
// provider.
type Interrupt struct {
	ID       string
	Type     event.InterruptType
	Revision uint64
}

// Interrupt gives the interrupt that is pending, as far as the worker knows: one
// that its own run committed, or that bind brought from the committed state.
func (s *Session) Interrupt() (i Interrupt, pending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending.question == nil {
		return Interrupt{}, false
	}
	return s.pending.question.Interrupt, true
}

// question is an interrupt with what tells it from another.
type question struct {
	Interrupt
	// hash of the body in its published form; zero for what bind brought, which is
	// a summary.
	hash [sha256.Size]byte
}

// keptAnswers is of how many interrupts it is remembered that they were answered.
const keptAnswers = 64

// pendingInterrupt is what a worker knows of the interrupt in the committed
// record. The record decides; what the worker knows lets it refuse what cannot be
// right.
type pendingInterrupt struct {
	// question is the one that is pending; nil for none.
	question *question
	// known says that question is what the record has. It does not hold for a
	// worker that was bound without one, since the run that it was bound for may be
	// the answer; nor after a commit whose outcome nobody told.
	known bool
	// answered are those that a run of this worker carried out, the latest last.
	answered []Interrupt
}

// answer says whether a decision on the interrupt can be the right one. Errors:
// interrupt_conflict for another revision or body than that of the pending one,
// and for one that was answered before; interrupt_not_found.
func (p *pendingInterrupt) answer(asked Interrupt, hash [sha256.Size]byte) error {
	const op = "session.Resume"
	if slices.Contains(p.answered, asked) {
		return fault.New(fault.InterruptConflict, op, fault.Detail("interrupt_id: answered before, by another run"))
	}
	q := p.question
	switch {
	case q != nil && q.ID == asked.ID:
		if q.Interrupt != asked {
			return fault.New(fault.InterruptConflict, op, fault.Detail("interrupt_revision: not that of the pending interrupt"))
		}
		if q.hash != [sha256.Size]byte{} && q.hash != hash {
			return fault.New(fault.InterruptConflict, op, fault.Detail("interrupt: not the body of the pending interrupt"))
		}
		return nil
	case p.known:
		return fault.New(fault.InterruptNotFound, op)
	}
	return nil
}

// take takes an interrupt out, as the record did when its answer was committed.
func (p *pendingInterrupt) take(asked Interrupt) {
	p.question, p.known = nil, true
	p.answered = append(p.answered, asked)
	if len(p.answered) > keptAnswers {
		p.answered = slices.Delete(p.answered, 0, 1)
	}
}

// after is what is pending after a run. What was pending belonged to the head
// before: each new head replaces it.
func (p *pendingInterrupt) after(r *Run) {
	switch r.head {
	case headInterrupted:
		p.question, p.known = &question{Interrupt: r.interrupt(), hash: r.askedHash}, true
	case headCommitted, headMoved:
		p.question, p.known = nil, true
	case headCovered: // nobody told what became of it
		p.known = false
	case headStands:
	}
}
