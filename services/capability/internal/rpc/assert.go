package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/capability/internal/mint"
)

// Assert implements capabilityv1connect.CapabilityServiceHandler.
func (h *handler) Assert(ctx context.Context, msg *capabilityv1.AssertRequest) (*capabilityv1.AssertResponse, error) {
	grant, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	holder, ok := rpc.PeerFrom(ctx)
	if !ok {
		return nil, fault.Wrap(errors.New("no peer behind the door"), fault.Internal, "rpc.Assert")
	}
	t, err := h.minter.Assert(ctx, grant, mint.AssertRequest{Holder: holder, Token: msg.GetSubjectToken(), Audience: msg.GetAudience()})
	if err != nil {
		return nil, err
	}
	return &capabilityv1.AssertResponse{Assertion: t.Reveal(), Jti: t.ID, ExpiresAt: timestamppb.New(t.ExpiresAt)}, nil
}
