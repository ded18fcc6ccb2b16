package rpc

import (
	"context"

	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// CommitHead implements the RPC of this name.
func (t *threadState) CommitHead(ctx context.Context, req *threadstatev1.CommitHeadRequest) (*threadstatev1.CommitHeadResponse, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	c, err := t.domain.CommitHead(ctx, g, threadstate.Commit{
		Codec:        codecFrom(req.GetCodec()),
		Expected:     req.GetExpectedRevision(),
		Ref:          req.GetSnapshotRef(),
		LastSequence: req.GetLastSequence(),
		Interrupt:    interruptFrom(req.GetInterrupt()),
	})
	if err != nil {
		return nil, err
	}
	return &threadstatev1.CommitHeadResponse{Revision: c.Revision, End: string(c.End.Kind)}, nil
}
