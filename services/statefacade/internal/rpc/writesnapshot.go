package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/rpc"
)

// WriteSnapshot implements the RPC of this name.
func (t *threadState) WriteSnapshot(ctx context.Context, stream threadstatev1connect.ThreadStateServiceWriteSnapshotServerStream) (*threadstatev1.WriteSnapshotResponse, error) {
	const op = "rpc.WriteSnapshot"
	first, err := stream.Receive()
	if errors.Is(err, io.EOF) {
		return nil, fault.New(fault.InvalidRequest, op, fault.Detail("body: at least one part"))
	}
	if err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	if first.GetCodec() == nil || len(first.GetInfo().GetSha256()) != sha256.Size {
		return nil, fault.New(fault.InvalidRequest, op, fault.Detail("codec and info: required in the first part"))
	}
	began := false
	ref, err := t.domain.WriteSnapshot(ctx, g, codecFrom(first.GetCodec()), contentFrom(first.GetInfo()), func() ([]byte, error) {
		if !began {
			began = true
			return first.GetChunk(), nil
		}
		m, err := stream.Receive()
		if err == nil && (m.GetCodec() != nil || m.GetInfo() != nil) {
			err = fault.New(fault.InvalidRequest, op, fault.Detail("codec and info: only in the first part"))
		}
		return m.GetChunk(), err
	})
	if err != nil {
		return nil, err
	}
	return &threadstatev1.WriteSnapshotResponse{SnapshotRef: ref}, nil
}

// contentFrom takes what the schema and the handler have checked.
func contentFrom(i *threadstatev1.SnapshotInfo) blob.Content {
	return blob.Content{Size: int64(i.GetSize()), SHA256: [sha256.Size]byte(i.GetSha256())} //nolint:gosec // at most 64 MiB, as the schema says
}
