package threadstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Head is the durable head with its payload.
type Head struct {
	// Revision is 0 for a new thread, which has nothing else.
	Revision uint64
	Ref      string
	SHA256   [sha256.Size]byte
	Payload  []byte
}

// LoadHead gives the head that is committed for the binding and epoch of the
// grant, never a pending snapshot. The head is the one in the record, and the
// record's digest is what the payload has to match.
//
// Faults: stale_lease; worker_mismatch where the head has another codec or
// version, because the worker's harness or adapter is then not the one that the
// thread was written with (no option of the agent is wrong, and state is never
// translated); persistence_failed where the payload is missing or damaged;
// dependency_unavailable where the record cannot be read.
func (s *Service) LoadHead(ctx context.Context, g fence.Grant, want Codec) (Head, error) {
	const op = "threadstate.LoadHead"
	if err := g.Validate(); err != nil {
		return Head{}, err
	}
	e := g.Envelope()
	r, err := s.writer.Backend().Load(ctx, e.BindingID)
	if err != nil {
		return Head{}, away(ctx, err, op)
	}
	if err := fence.Check(r.Committed(), e, s.now()); err != nil {
		return Head{}, err
	}
	if r.Head.Revision == 0 {
		return Head{}, nil
	}
	if have := (Codec{Name: r.Head.Codec, Version: r.Head.CodecVersion}); have != want {
		return Head{}, fault.New(fault.WorkerMismatch, op, fault.Detail("codec: the thread's head has another codec or version"))
	}
	snap, err := s.snapshots.Load(ctx, r.Head.SnapshotRef)
	if err != nil {
		return Head{}, lost(ctx, fmt.Errorf("payload of the head: %w", err), op)
	}
	sum := sha256.Sum256(snap.Payload)
	if err := verify(snap, hex.EncodeToString(sum[:]), r.Head.SHA256, e); err != nil {
		return Head{}, fault.Wrap(err, fault.PersistenceFailed, op)
	}
	return Head{Revision: r.Head.Revision, Ref: snap.Ref, SHA256: sum, Payload: snap.Payload}, nil
}

// verify compares the payload with what the head says of it; what its own row
// says proves nothing.
func verify(snap Snapshot, sum, want string, e fence.Envelope) error {
	switch {
	case sum != want:
		return errors.New("payload of the head is damaged")
	case snap.Owner.BindingID != e.BindingID || snap.Owner.Epoch != e.Epoch:
		return errors.New("payload of the head belongs to another thread")
	}
	return nil
}
