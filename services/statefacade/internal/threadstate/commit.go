package threadstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// readBack bounds the look at the record after a commit of unknown outcome. It
// may come after the deadline of the request: it changes nothing.
const readBack = 3 * time.Second

// Commit moves the head.
type Commit struct {
	Codec Codec
	// Expected is the revision that the run loaded.
	Expected uint64
	// Ref is the snapshot that becomes the head.
	Ref string
	// LastSequence is the last event that the head covers.
	LastSequence uint64
	// Interrupt that the run ends with; nil where it ends as success.
	Interrupt *Interrupt
}

// Interrupt is one that waits for a person once the head is committed. Its body
// stands in the log; what is kept here finds it and tells it from another.
type Interrupt struct {
	ID string
	// SHA256 of the payload of interrupt.requested in its published form.
	SHA256 [sha256.Size]byte
}

// Committed is what a commit left in the record.
type Committed struct {
	Revision uint64
	End      binding.End
}

// CommitHead makes the snapshot the head, at the next revision, and ends the
// run, in the one write that also checks epoch, generation, run, and that the log
// holds every event that the head covers; it waits for the log, within the
// deadline. The same commit under the same idempotency key answers as the first
// time. With an interrupt the run ends as interrupted, and the interrupt is
// pending at the head's revision. Where a cancel was decided before, the head
// moves, no interrupt is set, and the run still ends as cancelled.
//
// Faults: stale_lease; protocol for an interrupt that the log does not ask for;
// not_found where the snapshot is not one of this run and
// generation; invalid_request for another codec than the snapshot's;
// revision_conflict; idempotency_conflict; deadline_exceeded and
// persistence_failed with nothing changed; thread_durability_uncertain where the
// store did not tell what became of the write and the record does not show it.
func (s *Service) CommitHead(ctx context.Context, g fence.Grant, c Commit) (Committed, error) {
	const op = "threadstate.CommitHead"
	if err := g.Validate(); err != nil {
		return Committed{}, err
	}
	e := g.Envelope()
	info, err := s.snapshots.Stat(ctx, c.Ref)
	switch {
	case errors.Is(err, ErrNoSnapshot), err == nil && info.Owner != ownerOf(e):
		return Committed{}, fault.New(fault.NotFound, op, fault.Detail("snapshot_ref: not a snapshot of this run"))
	case err != nil:
		return Committed{}, lost(ctx, err, op)
	case info.Codec != c.Codec:
		return Committed{}, fault.New(fault.InvalidRequest, op, fault.Detail("codec: not that of the snapshot"))
	}
	commit := binding.HeadCommit{
		ExpectedRevision: c.Expected, Codec: c.Codec.Name, CodecVersion: c.Codec.Version, SnapshotRef: info.Ref,
		SHA256: hex.EncodeToString(info.SHA256[:]), IdempotencyDigest: digest.Of(e.IdempotencyKey), LastSequence: c.LastSequence,
	}
	if i := c.Interrupt; i != nil { // revision and run are filled in by the write
		commit.Interrupt = &binding.Interrupt{ID: i.ID, Hash: hex.EncodeToString(i.SHA256[:])}
		commit.Verify = func(ctx context.Context) error { return s.asked(ctx, e, c.LastSequence, *i) }
	}
	failpoint.Reach(failpoint.HeadAsked)
	head, end, err := s.writer.CommitHead(ctx, g, commit)
	if err != nil && unsettled(err) {
		head, end, err = s.readBack(ctx, e, commit, err)
	}
	if err != nil {
		return Committed{}, err
	}
	failpoint.Reach(failpoint.HeadMoved)
	return Committed{Revision: head.Revision, End: end}, nil
}

// unsettled are the faults after which the write may have happened all the same:
// the store did not answer, or the caller's time ran out while it was asked. Every
// other one says that nothing was written.
func unsettled(err error) bool {
	switch fault.CodeOf(err) {
	case fault.DependencyUnavailable, fault.DeadlineExceeded, fault.Cancelled:
		return true
	default:
		return false
	}
}

// readBack asks the record what became of a commit. It answers with the head
// where it stands; with the fault that fits where the commit can never happen any
// more; and otherwise with thread_durability_uncertain.
func (s *Service) readBack(ctx context.Context, e fence.Envelope, c binding.HeadCommit, cause error) (binding.Head, binding.End, error) {
	const op = "threadstate.readBack"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBack)
	defer cancel()
	uncertain := func(err error) (binding.Head, binding.End, error) {
		return binding.Head{}, binding.End{}, fault.Wrap(errors.Join(cause, err), fault.ThreadDurabilityUncertain, op)
	}
	never := func(err error) (binding.Head, binding.End, error) { return binding.Head{}, binding.End{}, err }

	r, err := s.writer.Backend().Load(ctx, e.BindingID)
	if err != nil {
		return uncertain(err)
	}
	ours := r.Epoch == e.Epoch && r.Head.RunID == e.RunID && r.Head.IdempotencyDigest == c.IdempotencyDigest
	active := r.Epoch == e.Epoch && r.Generation == e.Generation && r.Run != nil && r.Run.ID == e.RunID
	switch {
	case ours:
		end, err := s.endOf(ctx, r, e)
		if err != nil {
			return uncertain(err)
		}
		return r.Head, end, nil
	case !active, !r.Run.End.Open() && r.Run.End.Kind != binding.EndCancelling:
		return never(fault.Wrap(cause, fault.StaleLease, op))
	case r.Head.Revision != c.ExpectedRevision:
		return never(fault.Wrap(cause, fault.RevisionConflict, op))
	case r.Run.EventHead <= c.LastSequence:
		return never(cause) // the log is still behind, so the write was never sent
	default:
		return uncertain(nil)
	}
}

// endOf is the end of a run that is active, ending, or ended.
func (s *Service) endOf(ctx context.Context, r binding.Record, e fence.Envelope) (binding.End, error) {
	if r.Run != nil && r.Run.ID == e.RunID {
		return r.Run.End, nil
	}
	if entry := r.EndingRun(); entry != nil && entry.Run.ID == e.RunID {
		return entry.Run.End, nil
	}
	d, err := s.writer.Backend().LoadRun(ctx, e.RunID)
	return d.End, err
}

// MarkUncertain ends the run as thread_durability_uncertain, unless its end is
// decided: after it no commit of the run can happen any more, whatever became of
// the one that was sent. It answers with the end that stands; "success" or
// "interrupted" then says that the commit did happen. Faults: stale_lease, dependency_unavailable.
func (s *Service) MarkUncertain(ctx context.Context, g fence.Grant) (binding.End, error) {
	return s.writer.SetEnd(ctx, g, binding.End{Kind: binding.EndError, Reason: string(fault.ThreadDurabilityUncertain)})
}
