package binding

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

const (
	// headWait is how long a head commit waits for events that the worker names
	// and the log does not have yet.
	headWait = 30 * time.Second
	headPoll = 250 * time.Millisecond
)

// HeadCommit moves the head of a thread's state.
type HeadCommit struct {
	// ExpectedRevision is the head that the run loaded; 0 for a new thread.
	ExpectedRevision uint64
	Codec            string
	CodecVersion     uint32
	SnapshotRef      string
	SHA256           string
	// IdempotencyDigest names the commit within its run.
	IdempotencyDigest string
	// LastSequence is the last event that the head covers.
	LastSequence uint64
	// Interrupt ends the run as interrupted; its ID and Hash are set. Its Revision
	// becomes the head's, its RunID the run's.
	Interrupt *Interrupt
	// Verify is asked once the log has LastSequence and before the head moves,
	// whether the log bears the commit out; its error ends the commit. What it reads
	// is committed and never changes. nil asks nothing.
	Verify func(ctx context.Context) error
}

// CommitHead makes write 5: head, pending interrupt and the run's end, in one
// write, once the log has LastSequence. It waits for the log for at most 30 s
// and until the grant's deadline. It answers with the head and the end that
// stand: where a cancel was decided before, the head moves, no interrupt is set
// and the run still ends as cancelled. The same commit again answers as the
// first time.
//
// Faults: stale_lease; revision_conflict; idempotency_conflict for another
// content under the same digest; persistence_failed when the log does not get
// there; deadline_exceeded.
func (w *Writer) CommitHead(ctx context.Context, g fence.Grant, c HeadCommit) (Head, End, error) {
	const op = "binding.CommitHead"
	f, env, err := filterOf(g)
	if err != nil {
		return Head{}, End{}, err
	}
	if c.Codec == "" || c.SnapshotRef == "" || c.IdempotencyDigest == "" || c.Interrupt != nil && (c.Interrupt.ID == "" || c.Interrupt.Hash == "") {
		return Head{}, End{}, misuse(op, "a head needs codec, snapshot and digest, its interrupt id and hash")
	}
	ctx, cancel := context.WithDeadline(ctx, env.Deadline)
	defer cancel()
	head, end, err := w.commitHead(ctx, f, env, c)
	return head, end, fail(ctx, err, op)
}

func (w *Writer) commitHead(ctx context.Context, f Filter, env fence.Envelope, c HeadCommit) (Head, End, error) {
	giveUp := time.Now().Add(headWait)
	verified := c.Verify == nil
	for pause := firstPause; ; pause = min(2*pause, headPoll) {
		if !verified {
			var err error
			if verified, err = w.verify(ctx, env, c); err != nil {
				return Head{}, End{}, err
			}
		}
		r, err := w.update(ctx, env.BindingID, f, func(r *Record) error { return r.commitHead(c, verified, w.now().UTC()) })
		switch {
		case err == nil && r.Run != nil:
			return r.Head, r.Run.End, nil
		case errors.Is(err, ErrFenced):
			return w.committedHead(ctx, env, c)
		case !errors.Is(err, errBehind) && !errors.Is(err, errUnverified):
			return Head{}, End{}, err
		case time.Now().After(giveUp):
			return Head{}, End{}, fault.Wrap(err, fault.PersistenceFailed, "binding.CommitHead")
		}
		if err := sleep(ctx, pause); err != nil {
			return Head{}, End{}, err
		}
	}
}

// verify asks whether the log bears the commit out, once it can.
func (w *Writer) verify(ctx context.Context, env fence.Envelope, c HeadCommit) (verified bool, err error) {
	r, err := w.store.Load(ctx, env.BindingID)
	if err != nil || r.Run == nil || r.Run.ID != env.RunID || !r.Run.End.Open() || r.Run.EventHead <= c.LastSequence {
		return false, nil //nolint:nilerr // the write decides, and says why it cannot
	}
	return true, c.Verify(ctx)
}

// commitHead is write 5 on the record. The envelope is the filter's (model:
// M_GENC).
func (r *Record) commitHead(c HeadCommit, verified bool, at time.Time) error {
	run := r.Run
	switch {
	case run == nil:
		return ErrFenced
	case r.headIs(run.ID, c.IdempotencyDigest):
		if !r.sameHead(run.End, c) {
			return fault.New(fault.IdempotencyConflict, "binding.CommitHead")
		}
		return errStands
	case !run.End.Open() && run.End.Kind != EndCancelling:
		return ErrFenced
	case r.Head.Revision != c.ExpectedRevision:
		return fault.New(fault.RevisionConflict, "binding.CommitHead")
	case run.EventHead <= c.LastSequence:
		return errBehind
	case !verified && run.End.Open(): // a cancelled run asks nobody
		return errUnverified
	}
	r.Head = Head{
		Revision: r.Head.Revision + 1, Codec: c.Codec, CodecVersion: c.CodecVersion, SnapshotRef: c.SnapshotRef,
		SHA256: c.SHA256, RunID: run.ID, IdempotencyDigest: c.IdempotencyDigest,
	}
	// What was pending belonged to the head before. A cancelled run leaves none
	// either (model: ASIS_INTR).
	r.Interrupt = nil
	switch {
	case !run.End.Open():
	case c.Interrupt != nil:
		run.End = End{Kind: EndInterrupted}
		r.Interrupt = &Interrupt{ID: c.Interrupt.ID, Hash: c.Interrupt.Hash, Revision: r.Head.Revision, RunID: run.ID, At: at}
	default:
		run.End = End{Kind: EndSuccess}
	}
	return nil
}

func (r *Record) headIs(runID, digest string) bool {
	return r.Head.RunID == runID && r.Head.IdempotencyDigest == digest
}

// sameHead tells a repeat from another commit under the same digest.
func (r *Record) sameHead(end End, c HeadCommit) bool {
	h := r.Head
	if h.Revision != c.ExpectedRevision+1 || h.Codec != c.Codec || h.CodecVersion != c.CodecVersion || h.SnapshotRef != c.SnapshotRef || h.SHA256 != c.SHA256 {
		return false
	}
	switch end.Kind {
	case EndSuccess:
		return c.Interrupt == nil
	case EndInterrupted:
		return c.Interrupt != nil && (r.Interrupt == nil || r.Interrupt.ID == c.Interrupt.ID && r.Interrupt.Hash == c.Interrupt.Hash)
	case EndOpen, EndCancelling, EndError, EndLost:
	}
	return true
}

// committedHead looks for this very head after a write did not match: the run
// may have left service since an earlier try of it.
func (w *Writer) committedHead(ctx context.Context, env fence.Envelope, c HeadCommit) (Head, End, error) {
	r, err := w.store.Load(ctx, env.BindingID)
	if err != nil {
		return Head{}, End{}, err
	}
	if r.Epoch != env.Epoch || !r.headIs(env.RunID, c.IdempotencyDigest) {
		return Head{}, End{}, ErrFenced
	}
	end, err := w.endOf(ctx, env)
	if err != nil {
		return Head{}, End{}, err
	}
	if !r.sameHead(end, c) {
		return Head{}, End{}, fault.New(fault.IdempotencyConflict, "binding.CommitHead")
	}
	return r.Head, end, nil
}
