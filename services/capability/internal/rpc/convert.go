package rpc

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/services/capability/internal/mint"
)

func requestFromProto(msg *capabilityv1.MintRequest) (mint.Request, error) {
	subject, err := spiffeid.FromString(msg.GetSubject())
	if err != nil {
		return mint.Request{}, fault.Wrap(err, fault.InvalidRequest, "rpc.Mint", fault.Detail("subject: a SPIFFE ID"))
	}
	req := mint.Request{Subject: subject, Owner: msg.GetOwner(), Scopes: make([]mint.Scope, len(msg.GetScopes()))}
	for i, s := range msg.GetScopes() {
		req.Scopes[i] = mint.Scope{
			Audience:     capability.Audience(s.GetAudience()),
			Tools:        s.GetTools(),
			ApproveTools: s.GetApproveTools(),
			MemoryScopes: s.GetMemoryScopes(),
			Handles:      s.GetHandles(),
			ModelAlias:   s.GetModelAlias(),
		}
	}
	return req, nil
}

func responseToProto(tokens []mint.Token) *capabilityv1.MintResponse {
	res := &capabilityv1.MintResponse{Tokens: make([]*capabilityv1.Token, len(tokens))}
	for i, t := range tokens {
		res.Tokens[i] = tokenToProto(t)
	}
	return res
}
