package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

// endSuccess is how a run ends whose commit was not preceded by a cancel.
const endSuccess = "success"

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
	var res *threadstatev1.LoadHeadResponse
	if out := repeat(ctx, t.pause, func(ctx context.Context) error {
		var err error
		res, err = t.client.LoadHead(ctx, &threadstatev1.LoadHeadRequest{Envelope: t.envelope("load").Proto(), Codec: codec(c)})
		return err
	}); out.err != nil {
		return harness.Head{}, out.err
	}
	if res.GetRevision() > 0 {
		if sum := sha256.Sum256(res.GetPayload()); !bytes.Equal(sum[:], res.GetSha256()) {
			return harness.Head{}, fault.Wrap(errors.New("thread state does not have its SHA-256"), fault.PersistenceFailed, "facadeclient.Load")
		}
	}
	return harness.Head{Revision: res.GetRevision(), Payload: res.GetPayload()}, nil
}

// Commit writes the snapshot as pending and then moves the head. An outcome
// that stays unknown is said to be.
func (t *threadState) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	token, err := t.token(capability.ThreadState)
	if err != nil {
		return err
	}
	ctx = rpc.WithToken(ctx, token)
	ref, err := t.writeSnapshot(ctx, c, payload)
	if err != nil {
		return err
	}
	last, err := t.point.Cover()
	if err != nil {
		return err
	}
	var end string
	out := repeat(ctx, t.pause, func(ctx context.Context) error {
		res, err := t.client.CommitHead(ctx, &threadstatev1.CommitHeadRequest{
			Envelope: t.envelope("head").Proto(), Codec: codec(c), ExpectedRevision: revision, SnapshotRef: ref, LastSequence: last,
		})
		end = res.GetEnd()
		return err
	})
	switch {
	case out.unknown, fault.Is(out.err, fault.ThreadDurabilityUncertain):
		return t.uncertain(ctx, out.err)
	case out.err != nil:
		return out.err
	case end != endSuccess: // a cancel was decided first; the head has moved all the same
		return fault.New(fault.Cancelled, "facadeclient.Commit")
	}
	t.point.Committed()
	return nil
}

func (t *threadState) writeSnapshot(ctx context.Context, c harness.Codec, payload []byte) (ref string, err error) {
	sum := sha256.Sum256(payload)
	out := repeat(ctx, t.pause, func(ctx context.Context) error {
		res, err := t.client.WriteSnapshot(ctx, &threadstatev1.WriteSnapshotRequest{
			Envelope: t.envelope("snapshot").Proto(), Codec: codec(c), Payload: payload, Sha256: sum[:],
		})
		ref = res.GetSnapshotRef()
		return err
	})
	return ref, out.err // a snapshot that no head names means nothing
}

// uncertain asks the facade to end the run as uncertain, after which the commit
// cannot happen any more. If it had happened after all, that is what stands.
func (t *threadState) uncertain(ctx context.Context, cause error) error {
	res, err := t.client.MarkUncertain(ctx, &threadstatev1.MarkUncertainRequest{Envelope: t.envelope("uncertain").Proto()})
	if err == nil && res.GetEnd() == endSuccess {
		t.point.Committed()
		return nil
	}
	return fault.Wrap(errors.Join(cause, err), fault.ThreadDurabilityUncertain, "facadeclient.Commit")
}

func codec(c harness.Codec) *threadstatev1.Codec {
	return &threadstatev1.Codec{Name: c.Name, Version: c.Version}
}

// Interrupt is not there yet.
func (*threadState) Interrupt(context.Context, harness.Codec, uint64, []byte) error {
	return fault.New(fault.NotImplemented, "facadeclient.Interrupt")
}
