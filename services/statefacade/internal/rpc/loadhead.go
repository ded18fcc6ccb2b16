package rpc

import (
	"context"

	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// LoadHead implements the RPC of this name.
func (t *threadState) LoadHead(ctx context.Context, req *threadstatev1.LoadHeadRequest, stream threadstatev1connect.ThreadStateServiceLoadHeadServerStream) error {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return err
	}
	adapter := threadstate.Adapter{Harness: req.GetAdapter().GetHarnessId(), Version: req.GetAdapter().GetVersion()}
	return t.domain.LoadHead(ctx, g, adapter, codecFrom(req.GetCodec()), func(h *threadstate.Head, chunk []byte) error {
		return stream.Send(&threadstatev1.LoadHeadResponse{Info: headProto(h), Chunk: chunk})
	})
}

func headProto(h *threadstate.Head) *threadstatev1.HeadInfo {
	if h == nil {
		return nil
	}
	out := &threadstatev1.HeadInfo{Revision: h.Revision, SnapshotRef: h.Ref}
	if h.Revision > 0 {
		out.Snapshot = &threadstatev1.SnapshotInfo{Size: uint64(max(h.Size, 0)), Sha256: h.SHA256[:]}
	}
	return out
}
