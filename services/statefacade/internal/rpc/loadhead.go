package rpc

import (
	"context"

	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/rpc"
)

// LoadHead implements the RPC of this name.
func (t *threadState) LoadHead(ctx context.Context, req *threadstatev1.LoadHeadRequest) (*threadstatev1.LoadHeadResponse, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	h, err := t.domain.LoadHead(ctx, g, codecFrom(req.GetCodec()))
	if err != nil {
		return nil, err
	}
	res := &threadstatev1.LoadHeadResponse{Revision: h.Revision, SnapshotRef: h.Ref, Payload: h.Payload}
	if h.Revision > 0 {
		res.Sha256 = h.SHA256[:]
	}
	return res, nil
}
