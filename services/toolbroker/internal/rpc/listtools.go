package rpc

import (
	"context"

	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
)

// ListTools implements the RPC of this name.
func (b *broker) ListTools(_ context.Context, req *toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
	found, missing := b.lister.List(req.GetToolIds())
	res := &toolbrokerv1.ListToolsResponse{}
	for _, d := range found {
		res.Tools = append(res.Tools, &toolbrokerv1.ToolDescriptor{
			ToolId: d.ID, OfferedName: d.OfferedName, Description: d.Description, InputSchema: d.InputSchema, ReadOnly: d.ReadOnly,
			ApprovalRequired: d.ApprovalRequired, Delegates: d.Delegates,
		})
	}
	for _, u := range missing {
		res.Unavailable = append(res.Unavailable, &toolbrokerv1.UnavailableTool{ToolId: u.ID, Code: string(u.Code)})
	}
	return res, nil
}
