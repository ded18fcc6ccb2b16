package threadstate

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// WriteSnapshot keeps a snapshot as pending under the idempotency key of the
// grant, and gives its reference. The same key with the same content gives the
// same reference. What is not whole, or is not what was announced, is not kept.
//
// Faults: stale_lease, with nothing pending; state_too_large for more than
// MaxSnapshotBytes; invalid_request where size or digest are not the payload's;
// idempotency_conflict for other content under the key; capacity where the run
// has MaxSnapshotsPerRun or the binding MaxKeptBytes; rate_limited after
// MaxWritesPerMinute; persistence_failed, after which the same request may be sent
// again.
func (s *Service) WriteSnapshot(ctx context.Context, g fence.Grant, codec Codec, content blob.Content, parts blob.Parts) (ref string, err error) {
	const op = "threadstate.WriteSnapshot"
	if err := g.Validate(); err != nil {
		return "", err
	}
	switch {
	case content.Size < 1:
		return "", fault.New(fault.InvalidRequest, op, fault.Detail("info.size: at least 1"))
	case content.Size > MaxSnapshotBytes:
		return "", fault.New(fault.StateTooLarge, op)
	}
	e := g.Envelope()
	snap := Snapshot{Entry: Entry{
		Info: Info{Ref: ownerOf(e).ref(e.IdempotencyKey), Owner: ownerOf(e), Codec: codec, Content: content},
		At:   s.now(),
	}}
	if err := s.room(ctx, snap.Info); err != nil {
		return "", err
	}
	failpoint.Reach(failpoint.SnapshotAnnounced)
	stands, err := s.write(ctx, snap, parts)
	if err != nil {
		return "", err
	}
	failpoint.Reach(failpoint.SnapshotStaged)
	if _, err := s.guard.Admit(ctx, e); err != nil {
		if fault.Is(err, fault.StaleLease) { // nobody may confirm it any more
			s.discard(ctx, stands)
		}
		return "", err
	}
	if err := s.snapshots.Confirm(ctx, stands.Ref); err != nil {
		if errors.Is(err, ErrNoSnapshot) { // another attempt of the same write has failed
			s.discard(ctx, stands)
		}
		return "", lost(ctx, err, op)
	}
	failpoint.Reach(failpoint.SnapshotConfirmed)
	return stands.Ref, nil
}

func (s *Service) write(ctx context.Context, snap Snapshot, parts blob.Parts) (stands Entry, err error) {
	if snap.Size > MaxInlineBytes {
		snap.Blob = blobKey(snap.Owner.BindingID)
		return s.writeLarge(ctx, snap, parts)
	}
	return s.writeInline(ctx, snap, parts)
}

// blobKey is a new one each time, so that a payload which is removed late is not
// one that was written again.
func blobKey(bindingID string) string {
	return "snapshots/" + digest.Of("binding", bindingID) + "/" + rand.Text()
}

// room makes room where a run has left what lost, and says whether there is
// enough. A repeat needs none.
func (s *Service) room(ctx context.Context, in Info) error {
	const op = "threadstate.room"
	kept, err := s.collect(ctx, in.Owner.BindingID)
	if err != nil {
		return lost(ctx, err, op)
	}
	size, recent := in.Size, 0
	for _, k := range kept {
		if k.Ref == in.Ref {
			return nil
		}
		size += k.Size
		if s.now().Sub(k.At) < time.Minute {
			recent++
		}
	}
	switch {
	case recent >= MaxWritesPerMinute:
		return fault.New(fault.RateLimited, op)
	case size > MaxKeptBytes:
		return fault.New(fault.Capacity, op, fault.Detail("snapshots: those of this conversation use its room up"))
	}
	return nil
}

// writeInline stages a payload that stands in the snapshot store.
func (s *Service) writeInline(ctx context.Context, snap Snapshot, parts blob.Parts) (stands Entry, err error) {
	var payload bytes.Buffer
	if err := blob.Receive(&payload, snap.Content, parts); err != nil {
		return Entry{}, received(ctx, err)
	}
	snap.Payload = payload.Bytes()
	return s.stage(ctx, snap)
}

// writeLarge stages the entry, and then writes the payload where the entry says.
// The entry comes first: what it names can be found, and removed, whatever
// happens here. Until it is confirmed nobody meets it.
func (s *Service) writeLarge(ctx context.Context, snap Snapshot, parts blob.Parts) (stands Entry, err error) {
	const op = "threadstate.writeLarge"
	stands, err = s.stage(ctx, snap)
	if err != nil {
		return Entry{}, err
	}
	if stands.Confirmed { // the same write was here before; its content is only checked
		return stands, received(ctx, blob.Receive(io.Discard, snap.Content, parts))
	}
	w, err := s.blobs.Create(ctx, stands.Blob)
	if err != nil {
		return Entry{}, lost(ctx, err, op)
	}
	if err := blob.Receive(w, snap.Content, parts); err != nil {
		if aerr := w.Abort(); aerr != nil {
			s.logger.WarnContext(ctx, "an incomplete payload was left behind", "error", aerr.Error())
		}
		s.discard(ctx, stands)
		return Entry{}, received(ctx, err)
	}
	failpoint.Reach(failpoint.BlobReceived)
	if err := w.Commit(); err != nil {
		return Entry{}, lost(ctx, err, op)
	}
	return stands, nil
}

func (s *Service) stage(ctx context.Context, snap Snapshot) (stands Entry, err error) {
	const op = "threadstate.stage"
	stands, err = s.snapshots.Stage(ctx, snap, MaxSnapshotsPerRun)
	switch {
	case errors.Is(err, ErrFull):
		return Entry{}, fault.New(fault.Capacity, op, fault.Detail(fmt.Sprintf("snapshots: at most %d in a run", MaxSnapshotsPerRun)))
	case err != nil:
		return Entry{}, lost(ctx, err, op)
	case stands.Info != snap.Info:
		return Entry{}, fault.New(fault.IdempotencyConflict, op)
	}
	return stands, nil
}

// received is the fault for a payload that did not arrive as it was announced.
func received(ctx context.Context, err error) error {
	const op = "threadstate.received"
	var broken *blob.WriteError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, blob.ErrTooLong):
		return fault.New(fault.InvalidRequest, op, fault.Detail("chunk: more than was announced"))
	case errors.Is(err, blob.ErrTooShort):
		return fault.New(fault.InvalidRequest, op, fault.Detail("chunk: less than was announced"))
	case errors.Is(err, blob.ErrDigest):
		return fault.New(fault.InvalidRequest, op, fault.Detail("info.sha256: not that of the payload"))
	case errors.As(err, &broken):
		return lost(ctx, err, op)
	case ctx.Err() != nil: // the reason, whatever broke first
		return fault.From(context.Cause(ctx), op)
	}
	return fault.From(err, op)
}

// discardBound is how long removing what nobody may meet can take, also after the
// caller has gone.
const discardBound = 5 * time.Second

// discard removes what was staged, and its payload, unless another attempt of the
// same write has confirmed it in time: then it stays. A process that is killed
// between the two leaves a payload that nobody can meet.
func (s *Service) discard(ctx context.Context, e Entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardBound)
	defer cancel()
	err := s.snapshots.Drop(ctx, e.Ref)
	if err == nil && e.Blob != "" {
		if _, err = s.snapshots.Stat(ctx, e.Ref); errors.Is(err, ErrNoSnapshot) {
			err = s.blobs.Delete(ctx, e.Blob)
		}
	}
	if err != nil {
		s.logger.WarnContext(ctx, "a staged snapshot was left behind until it is collected", "error", err.Error())
	}
}
