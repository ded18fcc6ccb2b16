package binding

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/fault"
)

// ResumeParams is a decision on an interrupt, and the run that carries it out.
type ResumeParams struct {
	// StartParams of the new run; RunID is ResumeRunID of interrupt and revision.
	// Its ContentDigest is DecisionHash, whatever stands here.
	StartParams
	InterruptID string
	// AskedBy is the run that the decision answers, and InterruptHash what it
	// asked: ids of interrupts are a harness's, and may come again.
	AskedBy       string
	InterruptHash string
	// Revision of the interrupt, as the caller saw it.
	Revision uint64
	// DecisionHash tells the same decision from another one.
	DecisionHash string
	// Carried are the calls that wait for the decision, with what was decided; at
	// most MaxAdmitted.
	Carried []Carried
}

// Resume makes write 9. The same decision again is answered with its run.
// Faults: interrupt_not_found, interrupt_conflict for another revision or after
// another decision, and those of Start.
func (w *Writer) Resume(ctx context.Context, p ResumeParams) (Started, error) {
	const op = "binding.Resume"
	if err := p.validate(op); err != nil {
		return Started{}, err
	}
	if p.InterruptID == "" || p.DecisionHash == "" || p.AskedBy == "" || p.InterruptHash == "" {
		return Started{}, misuse(op, "a resume needs an interrupt and a decision")
	}
	if len(p.Carried) > MaxAdmitted {
		return Started{}, misuse(op, "a resume carries at most MaxAdmitted calls")
	}
	p.ContentDigest = p.DecisionHash
	s, err := w.begin(ctx, p.StartParams, func(r *Record, run Run, revision uint64) error { return r.resume(p, run, revision) })
	if fault.Is(err, fault.IdempotencyConflict) { // the run's id is that of the interrupt: it was answered otherwise
		err = fault.Wrap(err, fault.InterruptConflict, op)
	}
	return s, fail(ctx, err, op)
}

// resume is write 9 on the record: one write takes the interrupt out, sets the
// run and keeps the decision. With the interrupt left in, two decisions would
// both win (model: M_RESUME).
func (r *Record) resume(p ResumeParams, run Run, revision uint64) error {
	if c := r.Resumed; c != nil && c.InterruptID == p.InterruptID && c.Revision == p.Revision && r.Epoch == p.Epoch {
		if c.DecisionHash != p.DecisionHash || c.RunID != run.ID {
			return fault.New(fault.InterruptConflict, "binding.Resume")
		}
		if stands, _ := r.find(run.ID); stands != nil {
			return errStands
		}
		return errMoved // concluded since the record was read: its document is there now
	}
	if err := r.startable(p.StartParams, run, revision); err != nil {
		return err
	}
	switch i := r.Interrupt; {
	case i == nil || i.ID != p.InterruptID:
		return fault.New(fault.InterruptNotFound, "binding.Resume")
	case i.Revision != p.Revision, i.RunID != p.AskedBy, i.Hash != p.InterruptHash:
		return fault.New(fault.InterruptConflict, "binding.Resume")
	}
	run.AskedBy, run.Carried = p.AskedBy, p.Carried
	r.run(run)
	r.Resumed = &Resumed{InterruptID: p.InterruptID, Revision: p.Revision, DecisionHash: p.DecisionHash, RunID: run.ID, InterruptHash: p.InterruptHash}
	r.Interrupt = nil
	r.Revision++
	return nil
}

// ExpireInterrupt takes a pending interrupt out: the same compare-and-set as a
// resume, so one of the two wins. It is repeatable. Faults: interrupt_conflict
// where it was answered meanwhile or has another revision, not_found without a
// record.
func (w *Writer) ExpireInterrupt(ctx context.Context, bindingID, interruptID string, revision uint64) error {
	const op = "binding.ExpireInterrupt"
	_, err := w.update(ctx, bindingID, Filter{}, func(r *Record) error { return r.expireInterrupt(interruptID, revision) })
	return fail(ctx, err, op)
}

func (r *Record) expireInterrupt(id string, revision uint64) error {
	conflict := fault.New(fault.InterruptConflict, "binding.ExpireInterrupt")
	if c := r.Resumed; c != nil && c.InterruptID == id && c.Revision == revision {
		return conflict
	}
	switch i := r.Interrupt; {
	case i == nil || i.ID != id:
		return errStands
	case i.Revision != revision:
		return conflict
	}
	r.Interrupt = nil
	return nil
}

// notFound reports whether err says that there is no such document.
func notFound(err error) bool { return errors.Is(err, ErrNotFound) }
