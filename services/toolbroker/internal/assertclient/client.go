// Package assertclient has the capability service vouch for the subject of a run.
//
// ToolBroker cannot say to anybody who a subject is. For each token that it wants
// for one it shows the worker's capability to the capability service, which reads
// the subject from the committed record and signs that for one token endpoint and
// a minute.
package assertclient

import (
	"context"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/fence"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
)

// Client asks for assertions. It is safe for concurrent use.
type Client struct {
	capabilities capabilityv1connect.CapabilityServiceClient
}

// New makes a Client on connections to the capability service.
func New(capabilities *connect.Client) *Client {
	return &Client{capabilityv1connect.NewCapabilityServiceClient(capabilities)}
}

// Assert gives an assertion about the committed subject of the envelope's run, for
// one token endpoint. token is the capability with which the worker came. Faults
// are those of the capability service: stale_lease and cancelled say that the run
// is over, audience_mismatch that the endpoint is not listed there.
func (c *Client) Assert(ctx context.Context, env fence.Envelope, token, tokenURL string) (assertion string, err error) {
	res, err := c.capabilities.Assert(ctx, &capabilityv1.AssertRequest{Envelope: env.Proto(), SubjectToken: token, Audience: tokenURL})
	if err != nil {
		return "", err
	}
	return res.GetAssertion(), nil
}
