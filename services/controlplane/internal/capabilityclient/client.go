// Package capabilityclient asks the capability service for capabilities.
package capabilityclient

import (
	"context"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/fence"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Client mints. It is a lease.Minter.
type Client struct {
	rpc capabilityv1connect.CapabilityServiceClient
}

// New makes a Client on a connection to the capability service.
func New(c *connect.Client) *Client {
	return &Client{rpc: capabilityv1connect.NewCapabilityServiceClient(c)}
}

// Mint asks for one token for each scope, in their order.
func (c *Client) Mint(ctx context.Context, env fence.Envelope, subject, owner string, scopes []lease.Scope) ([]worker.Token, error) {
	req := &capabilityv1.MintRequest{Envelope: env.Proto(), Subject: subject, Owner: owner}
	for _, s := range scopes {
		req.Scopes = append(req.Scopes, &capabilityv1.Scope{
			Audience: string(s.Audience), Tools: s.Tools, ApproveTools: s.ApproveTools, MemoryScopes: s.Memory, Handles: s.Handles, ModelAlias: s.ModelAlias,
		})
	}
	res, err := c.rpc.Mint(ctx, req)
	if err != nil {
		return nil, err
	}
	out := make([]worker.Token, len(res.GetTokens()))
	for i, t := range res.GetTokens() {
		out[i] = worker.Token{Audience: t.GetAudience(), Token: t.GetToken(), ID: t.GetJti()}
	}
	return out, nil
}
