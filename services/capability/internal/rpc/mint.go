package rpc

import (
	"context"

	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/capability/internal/mint"
)

type handler struct {
	minter *mint.Minter
}

// Mint implements capabilityv1connect.CapabilityServiceHandler.
func (h *handler) Mint(ctx context.Context, msg *capabilityv1.MintRequest) (*capabilityv1.MintResponse, error) {
	grant, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	req, err := requestFromProto(msg)
	if err != nil {
		return nil, err
	}
	tokens, err := h.minter.Mint(ctx, grant, req)
	if err != nil {
		return nil, err
	}
	return responseToProto(tokens), nil
}
