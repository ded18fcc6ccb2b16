package rpc

import (
	"context"

	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/rpc"
)

// WriteSnapshot implements the RPC of this name.
func (t *threadState) WriteSnapshot(ctx context.Context, req *threadstatev1.WriteSnapshotRequest) (*threadstatev1.WriteSnapshotResponse, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := t.domain.WriteSnapshot(ctx, g, codecFrom(req.GetCodec()), req.GetPayload(), req.GetSha256())
	if err != nil {
		return nil, err
	}
	return &threadstatev1.WriteSnapshotResponse{SnapshotRef: ref}, nil
}
