package threadstate

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Head is the durable head without its payload.
type Head struct {
	// Revision is 0 for a new thread, which has nothing else.
	Revision uint64
	Ref      string
	blob.Content
}

// Reader takes a head, part by part. The first part has its info, and no chunk
// where there is no payload; chunk must not be kept.
type Reader func(info *Head, chunk []byte) error

// LoadHead sends the head that is committed for the binding and epoch of the
// grant, never a pending snapshot. The head is the one in the record, and the
// record's digest is what the payload has to match: the last part leaves only
// then.
//
// Faults: stale_lease; worker_mismatch where the head has another codec or
// version, or the thread belongs to another harness, to a later version of its
// adapter or to another major one, because the worker is then not one that reads
// what the thread was written with (no option of the agent is wrong, and state is
// never translated); persistence_failed where
// the payload is missing or damaged; dependency_unavailable where the record
// cannot be read.
func (s *Service) LoadHead(ctx context.Context, g fence.Grant, a Adapter, want Codec, send Reader) error {
	const op = "threadstate.LoadHead"
	if err := g.Validate(); err != nil {
		return err
	}
	e := g.Envelope()
	r, err := s.writer.Backend().Load(ctx, e.BindingID)
	if err != nil {
		return away(ctx, err, op)
	}
	if err := fence.Check(r.Committed(), e, s.now()); err != nil {
		return err
	}
	if !a.reads(Adapter{Harness: r.Identity.HarnessID, Version: r.Identity.AdapterVersion}) {
		return fault.New(fault.WorkerMismatch, op, fault.Detail("adapter: the thread belongs to another harness, or to a version that this one does not read"))
	}
	if r.Head.Revision == 0 {
		return interrupted(ctx, send(&Head{}, nil), op)
	}
	if have := (Codec{Name: r.Head.Codec, Version: r.Head.CodecVersion}); have != want {
		return fault.New(fault.WorkerMismatch, op, fault.Detail("codec: the thread's head has another codec or version"))
	}
	snap, err := s.snapshots.Load(ctx, r.Head.SnapshotRef)
	if err != nil {
		return lost(ctx, fmt.Errorf("payload of the head: %w", err), op)
	}
	if err := belongs(snap.Entry, r.Head.SHA256, e); err != nil {
		return fault.Wrap(err, fault.PersistenceFailed, op)
	}
	failpoint.Reach(failpoint.HeadRead)
	return s.send(ctx, Head{Revision: r.Head.Revision, Ref: snap.Ref, Content: snap.Content}, snap, send)
}

// belongs compares the entry with what the head says of it; what its own row
// says proves nothing.
func belongs(snap Entry, sha256 string, e fence.Envelope) error {
	switch {
	case hex.EncodeToString(snap.SHA256[:]) != sha256:
		return errors.New("payload of the head is another one")
	case snap.Owner.BindingID != e.BindingID || snap.Owner.Epoch != e.Epoch:
		return errors.New("payload of the head belongs to another thread")
	}
	return nil
}

// send sends the payload, which is checked on the way.
func (s *Service) send(ctx context.Context, h Head, snap Snapshot, send Reader) error {
	const op = "threadstate.send"
	r, err := s.payload(ctx, snap)
	if err != nil {
		return lost(ctx, fmt.Errorf("payload of the head: %w", err), op)
	}
	info := &h
	err = blob.Send(ctx, r, h.Content, func(chunk []byte) error {
		err := send(info, chunk)
		info = nil
		return err
	})
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if _, gone := errors.AsType[*blob.SendError](err); gone {
		return interrupted(ctx, err, op)
	}
	if err != nil {
		return lost(ctx, fmt.Errorf("payload of the head: %w", err), op)
	}
	return nil
}

func (s *Service) payload(ctx context.Context, snap Snapshot) (io.ReadCloser, error) {
	if snap.Blob == "" {
		return io.NopCloser(bytes.NewReader(snap.Payload)), nil
	}
	return s.blobs.Open(ctx, snap.Blob, 0)
}

// interrupted is the fault of a stream that did not come to its end.
func interrupted(ctx context.Context, err error, op string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx), op)
	}
	return fault.From(err, op)
}
