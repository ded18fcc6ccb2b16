package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

// How a run ends whose commit was not preceded by a cancel.
const (
	endSuccess     = "success"
	endInterrupted = "interrupted"
)

type threadState struct {
	authority
	client threadstatev1connect.ThreadStateServiceClient
	point  session.CommitPoint
}

func (t *threadState) Load(ctx context.Context, c harness.Codec) (harness.Head, error) {
	token, err := t.token(capability.ThreadState)
	if err != nil {
		return harness.Head{}, err
	}
	ctx = rpc.WithToken(ctx, token)
	var head harness.Head
	out := repeat(ctx, t.pause, func(ctx context.Context) (err error) {
		head, err = t.load(ctx, c)
		return err
	})
	return head, out.err
}

// load reads a head to its end. One that is not what it is said to be is an error.
func (t *threadState) load(ctx context.Context, c harness.Codec) (harness.Head, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	stream, err := t.client.LoadHead(ctx, &threadstatev1.LoadHeadRequest{
		Envelope: t.envelope("load").Proto(), Codec: codec(c),
		Adapter: &threadstatev1.Adapter{HarnessId: t.adapter.ID, Version: t.adapter.Version},
	})
	if err != nil {
		return harness.Head{}, err
	}
	first, err := stream.Receive()
	if err != nil {
		return harness.Head{}, ended(err)
	}
	info := first.GetInfo()
	if info.GetRevision() == 0 {
		return harness.Head{}, nil
	}
	want, err := contentOf(info.GetSnapshot())
	if err != nil {
		return harness.Head{}, err
	}
	payload := bytes.NewBuffer(make([]byte, 0, want.Size))
	chunk := first.GetChunk()
	err = blob.Receive(payload, want, func() ([]byte, error) {
		if chunk != nil {
			defer func() { chunk = nil }()
			return chunk, nil
		}
		m, err := stream.Receive()
		return m.GetChunk(), err
	})
	switch {
	case errors.Is(err, blob.ErrTooLong), errors.Is(err, blob.ErrTooShort), errors.Is(err, blob.ErrDigest):
		return harness.Head{}, fault.Wrap(fmt.Errorf("thread state: %w", err), fault.PersistenceFailed, "facadeclient.Load")
	case err != nil:
		return harness.Head{}, err
	}
	return harness.Head{Revision: info.GetRevision(), Payload: payload.Bytes()}, nil
}

// contentOf is what a head says that it is.
func contentOf(i *threadstatev1.SnapshotInfo) (blob.Content, error) {
	if i.GetSize() < 1 || i.GetSize() > blob.MaxBytes || len(i.GetSha256()) != sha256.Size {
		return blob.Content{}, fault.Wrap(errors.New("thread state: no such size or digest"), fault.PersistenceFailed, "facadeclient.Load")
	}
	return blob.Content{Size: int64(i.GetSize()), SHA256: [sha256.Size]byte(i.GetSha256())}, nil //nolint:gosec // at most 64 MiB
}

// ended is the fault of a stream without a message.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.Wrap(errors.New("thread state: an answer without parts"), fault.Internal, "facadeclient.Load")
	}
	return err
}

// Commit writes the snapshot as pending and then moves the head. An outcome
// that stays unknown is said to be.
func (t *threadState) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	return t.commit(ctx, c, revision, payload, func() (covered, error) {
		last, err := t.point.Cover()
		return covered{last: last, end: endSuccess, done: t.point.Committed}, err
	})
}

// Interrupt is Commit for a run that waits for a person: the head names what was
// asked.
func (t *threadState) Interrupt(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	return t.commit(ctx, c, revision, payload, func() (covered, error) {
		last, asked, err := t.point.CoverInterrupt()
		if err != nil {
			return covered{}, err
		}
		body, err := event.InterruptBody(asked)
		if err != nil {
			return covered{}, fault.Wrap(err, fault.Protocol, "facadeclient.Interrupt")
		}
		sum := sha256.Sum256(body)
		return covered{
			last: last, end: endInterrupted,
			interrupt: &threadstatev1.PendingInterrupt{InterruptId: asked.InterruptID, Sha256: sum[:]},
			done:      func() { t.point.Interrupted(revision + 1) },
		}, nil
	})
}

// covered is what a head is to cover, and how the run ends with it.
type covered struct {
	last      uint64
	interrupt *threadstatev1.PendingInterrupt
	end       string
	// done tells the run that it does.
	done func()
}

func (t *threadState) commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte, cover func() (covered, error)) error {
	token, err := t.token(capability.ThreadState)
	if err != nil {
		return err
	}
	ctx = rpc.WithToken(ctx, token)
	failpoint.Reach(failpoint.WorkerSnapshot)
	ref, err := t.writeSnapshot(ctx, c, payload)
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.WorkerHead)
	what, err := cover()
	if err != nil {
		return err
	}
	var end string
	out := repeat(ctx, t.pause, func(ctx context.Context) error {
		res, err := t.client.CommitHead(ctx, &threadstatev1.CommitHeadRequest{
			Envelope: t.envelope("head").Proto(), Codec: codec(c), ExpectedRevision: revision, SnapshotRef: ref,
			LastSequence: what.last, Interrupt: what.interrupt,
		})
		end = res.GetEnd()
		return err
	})
	switch {
	case out.unknown, fault.Is(out.err, fault.ThreadDurabilityUncertain):
		return t.uncertain(ctx, out.err, what)
	case out.err != nil:
		return out.err
	case end != what.end: // a cancel was decided first; the head has moved all the same
		t.point.Moved()
		return fault.New(fault.Cancelled, "facadeclient.Commit")
	}
	failpoint.Reach(failpoint.WorkerTerminal)
	what.done()
	return nil
}

func (t *threadState) writeSnapshot(ctx context.Context, c harness.Codec, payload []byte) (ref string, err error) {
	if len(payload) > blob.MaxBytes {
		return "", fault.New(fault.StateTooLarge, "facadeclient.Commit")
	}
	content := blob.Of(payload)
	out := repeat(ctx, t.pause, func(ctx context.Context) error {
		stream, err := t.client.WriteSnapshot(ctx)
		if err != nil {
			return err
		}
		first := &threadstatev1.WriteSnapshotRequest{
			Codec: codec(c), Info: &threadstatev1.SnapshotInfo{Size: uint64(len(payload)), Sha256: content.SHA256[:]},
		}
		for part, rest := first, payload; ; part = (&threadstatev1.WriteSnapshotRequest{}) {
			n := min(len(rest), blob.MaxChunkBytes)
			part.Envelope, part.Chunk, rest = t.envelope("snapshot").Proto(), rest[:n], rest[n:]
			if stream.Send(part) != nil || len(rest) == 0 {
				break // what is wrong, the answer says
			}
		}
		res, err := stream.CloseAndReceive()
		ref = res.GetSnapshotRef()
		return err
	})
	return ref, out.err // a snapshot that no head names means nothing
}

// uncertain asks the facade to end the run as uncertain, after which the commit
// cannot happen any more. If it had happened after all, that is what stands.
func (t *threadState) uncertain(ctx context.Context, cause error, what covered) error {
	res, err := t.client.MarkUncertain(ctx, &threadstatev1.MarkUncertainRequest{Envelope: t.envelope("uncertain").Proto()})
	if err == nil && res.GetEnd() == what.end {
		what.done()
		return nil
	}
	return fault.Wrap(errors.Join(cause, err), fault.ThreadDurabilityUncertain, "facadeclient.Commit")
}

func codec(c harness.Codec) *threadstatev1.Codec {
	return &threadstatev1.Codec{Name: c.Name, Version: c.Version}
}
