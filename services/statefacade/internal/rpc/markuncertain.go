package rpc

import (
	"context"

	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/rpc"
)

// MarkUncertain implements the RPC of this name.
func (t *threadState) MarkUncertain(ctx context.Context, _ *threadstatev1.MarkUncertainRequest) (*threadstatev1.MarkUncertainResponse, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	end, err := t.domain.MarkUncertain(ctx, g)
	if err != nil {
		return nil, err
	}
	return &threadstatev1.MarkUncertainResponse{End: string(end.Kind)}, nil
}
