package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/capability/internal/mint"
)

// Exchange implements capabilityv1connect.CapabilityServiceHandler.
func (h *handler) Exchange(ctx context.Context, msg *capabilityv1.ExchangeRequest) (*capabilityv1.ExchangeResponse, error) {
	grant, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	holder, ok := rpc.PeerFrom(ctx)
	if !ok {
		return nil, fault.Wrap(errors.New("no peer behind the door"), fault.Internal, "rpc.Exchange")
	}
	t, err := h.minter.Exchange(ctx, grant, mint.ExchangeRequest{
		Holder: holder, Token: msg.GetSubjectToken(), Audience: capability.Audience(msg.GetAudience()),
	})
	if err != nil {
		return nil, err
	}
	return &capabilityv1.ExchangeResponse{Token: tokenToProto(t)}, nil
}

func tokenToProto(t mint.Token) *capabilityv1.Token {
	return &capabilityv1.Token{Audience: string(t.Audience), Token: t.Reveal(), Jti: t.ID, ExpiresAt: timestamppb.New(t.ExpiresAt)}
}
