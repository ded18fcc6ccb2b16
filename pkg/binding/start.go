package binding

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
)

// starts is how often a start reads again when the record moves under it.
const starts = 16

// StartParams is a run to start.
type StartParams struct {
	BindingID string
	// RunID is RunID or ResumeRunID of binding, Epoch and key.
	RunID     string
	RequestID string
	// KeyDigest and ContentDigest tell the same request from another one under
	// the same key.
	KeyDigest     string
	ContentDigest string
	// Epoch for which RunID was computed. A record that has another one by now
	// refuses the start as stale: the same key would get another id there.
	Epoch uint32
	// Deadline of the run.
	Deadline time.Time
	// Owner is the replica, and its incarnation, that will drive the run.
	Owner string
	// NoInterrupt starts the run only where no interrupt is pending: its head
	// commit would take the interrupt away.
	NoInterrupt bool
	// AwaitsStream starts a run whose first stream can be taken with TakeStream.
	AwaitsStream bool
	// DelegatedBy is the call on whose behalf the run works, if any.
	DelegatedBy *Delegation
}

func (p StartParams) validate(op string) error {
	if p.BindingID == "" || p.RunID == "" || p.Owner == "" || p.Deadline.IsZero() {
		return misuse(op, "a start needs binding, run, owner and deadline")
	}
	return nil
}

// StartOutcome says what a start has found or done.
type StartOutcome int

const (
	// StartedNow set the run; the caller drives it.
	StartedNow StartOutcome = iota + 1
	// StartedBefore found this very run in the record, active or ending. If it
	// carries the caller's own incarnation and the caller does not drive it, a
	// reply was lost, and the caller takes it up (write 10).
	StartedBefore
	// Finished found the run's document.
	Finished
)

// Started is the answer to a start.
type Started struct {
	Outcome StartOutcome
	// Record as it stands with the run in it; as it was read for Finished.
	Record Record
	// Document is set for Finished.
	Document *RunDocument
}

// Start makes write 1. Faults: already_running when another run is active or
// still ending, idempotency_conflict when the run stands or stood with other
// content, stale_lease for another epoch, interrupt_conflict where NoInterrupt
// asks for it, not_found without a record.
func (w *Writer) Start(ctx context.Context, p StartParams) (Started, error) {
	const op = "binding.Start"
	if err := p.validate(op); err != nil {
		return Started{}, err
	}
	s, err := w.begin(ctx, p, func(r *Record, run Run, revision uint64) error { return r.start(p, run, revision) })
	return s, fail(ctx, err, op)
}

// start is write 1 on the record: the run is set where there is none, where
// ending holds none and where the revision is what was read before the run's
// document was looked for. Without the revision a slow second start would start
// a finished run again (model: M_REV); with a document inserted first, a start
// could be left half done (ASIS_DOC).
func (r *Record) start(p StartParams, run Run, revision uint64) error {
	if err := r.startable(p, run, revision); err != nil {
		return err
	}
	if p.NoInterrupt && r.Interrupt != nil {
		return fault.New(fault.InterruptConflict, "binding.Start")
	}
	r.run(run)
	r.Revision++
	return nil
}

// run makes a run the active one. A sandbox is claimed for it from now on.
func (r *Record) run(run Run) {
	r.Run = &run
	if r.Lease != nil && r.Lease.State == LeaseHibernated {
		lease := *r.Lease
		lease.State = LeaseClaiming
		r.Lease = &lease
	}
}

func (r *Record) startable(p StartParams, run Run, revision uint64) error {
	switch stands, _ := r.find(run.ID); {
	case stands != nil && stands.ContentDigest != run.ContentDigest:
		return fault.New(fault.IdempotencyConflict, "binding.Start")
	case stands != nil:
		return errStands
	case r.Epoch != p.Epoch:
		return ErrFenced
	case r.Run != nil || r.EndingRun() != nil:
		return fault.New(fault.AlreadyRunning, "binding.Start")
	case r.Revision != revision:
		return errMoved
	}
	return nil
}

// begin is what a start and a resume have in common: one read of the record,
// then the run's document, then the write that decides.
func (w *Writer) begin(ctx context.Context, p StartParams, set func(*Record, Run, uint64) error) (Started, error) {
	run := Run{
		ID: p.RunID, RequestID: p.RequestID, KeyDigest: p.KeyDigest, ContentDigest: p.ContentDigest,
		StartedAt: w.now().UTC(), Deadline: p.Deadline.UTC(), Owner: p.Owner, Nonce: newNonce(),
		AwaitsStream: p.AwaitsStream, DelegatedBy: p.DelegatedBy,
	}
	for range starts {
		read, err := w.store.Load(ctx, p.BindingID)
		if err != nil {
			return Started{}, err
		}
		switch stands, _ := read.find(run.ID); {
		case stands != nil && stands.ContentDigest != run.ContentDigest:
			return Started{}, fault.New(fault.IdempotencyConflict, "binding.Start")
		case stands != nil:
			// Never on to the write from here: a run that leaves ending before it does
			// not raise the revision, and would be started again.
			return Started{Outcome: StartedBefore, Record: read}, nil
		}
		if d, err := w.finished(ctx, p); err != nil || d != nil {
			return Started{Outcome: Finished, Record: read, Document: d}, err
		}
		r, err := w.update(ctx, p.BindingID, Filter{}, func(r *Record) error { return set(r, run, read.Revision) })
		switch {
		case errors.Is(err, errMoved):
			continue
		case err != nil:
			return Started{}, err
		case r.Run != nil && r.Run.ID == run.ID && r.Run.Nonce == run.Nonce:
			return Started{Outcome: StartedNow, Record: r}, nil
		default:
			return Started{Outcome: StartedBefore, Record: r}, nil
		}
	}
	return Started{}, fault.Wrap(errMoved, fault.DependencyUnavailable, "binding.Start")
}

// finished reads the document of a run that has ended, or nil.
func (w *Writer) finished(ctx context.Context, p StartParams) (*RunDocument, error) {
	d, err := w.store.LoadRun(ctx, p.RunID)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil //nolint:nilnil // no document is an answer here
	case err != nil:
		return nil, err
	case d.BindingID != p.BindingID || d.ContentDigest != p.ContentDigest:
		return nil, fault.New(fault.IdempotencyConflict, "binding.Start")
	}
	return &d, nil
}
