package threadstate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// WriteSnapshot keeps a snapshot as pending under the idempotency key of the
// grant, and gives its reference. The same key with the same content gives the
// same reference.
//
// Faults: stale_lease, with nothing kept; state_too_large; invalid_request where
// sum is not the payload's; idempotency_conflict for other content under the
// key; capacity where the run has MaxSnapshotsPerRun; persistence_failed, after
// which the same request may be sent again.
func (s *Service) WriteSnapshot(ctx context.Context, g fence.Grant, codec Codec, payload, sum []byte) (ref string, err error) {
	const op = "threadstate.WriteSnapshot"
	if err := g.Validate(); err != nil {
		return "", err
	}
	e := g.Envelope()
	snap := Snapshot{Payload: payload, Info: Info{
		Ref: ownerOf(e).ref(e.IdempotencyKey), Owner: ownerOf(e), Codec: codec, SHA256: sha256.Sum256(payload),
	}}
	switch {
	case len(payload) == 0:
		return "", fault.New(fault.InvalidRequest, op, fault.Detail("payload: required"))
	case len(payload) > MaxSnapshotBytes:
		return "", fault.New(fault.StateTooLarge, op)
	case string(sum) != string(snap.SHA256[:]):
		return "", fault.New(fault.InvalidRequest, op, fault.Detail("sha256: not that of the payload"))
	}
	stands, err := s.snapshots.Stage(ctx, snap, MaxSnapshotsPerRun)
	switch {
	case errors.Is(err, ErrFull):
		return "", fault.New(fault.Capacity, op, fault.Detail(fmt.Sprintf("snapshots: at most %d in a run", MaxSnapshotsPerRun)))
	case err != nil:
		return "", lost(ctx, err, op)
	case stands != snap.Info:
		return "", fault.New(fault.IdempotencyConflict, op)
	}
	if _, err := s.guard.Admit(ctx, e); err != nil {
		return "", s.abandon(ctx, err, snap.Ref)
	}
	if err := s.snapshots.Confirm(ctx, snap.Ref); err != nil {
		return "", lost(ctx, err, op)
	}
	return snap.Ref, nil
}

// abandon drops what was staged where it is certain that nobody may confirm it
// any more. Another attempt of the same write may have confirmed it in time;
// then it stays.
func (s *Service) abandon(ctx context.Context, cause error, ref string) error {
	if fault.Is(cause, fault.StaleLease) {
		if err := s.snapshots.Drop(ctx, ref); err != nil {
			s.logger.WarnContext(ctx, "a staged snapshot of a replaced lease was left behind", "error", err.Error())
		}
	}
	return cause
}
