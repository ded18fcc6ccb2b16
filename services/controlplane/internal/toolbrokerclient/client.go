// Package toolbrokerclient asks the ToolBroker to describe tools.
package toolbrokerclient

import (
	"context"

	"connectrpc.com/connect/v2"

	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Client lists tools. It is a lease.ToolLister.
type Client struct {
	rpc toolbrokerv1connect.ToolBrokerServiceClient
}

// New makes a Client on a connection to the ToolBroker.
func New(c *connect.Client) *Client {
	return &Client{rpc: toolbrokerv1connect.NewToolBrokerServiceClient(c)}
}

// ListTools describes the tools of the patterns, exact ids or "namespace.*".
func (c *Client) ListTools(ctx context.Context, patterns []string) (tools []worker.Tool, unavailable []string, err error) {
	res, err := c.rpc.ListTools(ctx, &toolbrokerv1.ListToolsRequest{ToolIds: patterns})
	if err != nil {
		return nil, nil, err
	}
	for _, t := range res.GetTools() {
		tools = append(tools, worker.Tool{
			ID: t.GetToolId(), OfferedName: t.GetOfferedName(), Description: t.GetDescription(), InputSchema: t.GetInputSchema(),
			ReadOnly: t.GetReadOnly(), ApprovalRequired: t.GetApprovalRequired(), Delegates: t.GetDelegates(),
		})
	}
	for _, u := range res.GetUnavailable() {
		unavailable = append(unavailable, u.GetToolId())
	}
	return tools, unavailable, nil
}
