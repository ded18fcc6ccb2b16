package rpc

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/toolbroker/internal/call"
)

// CallTool implements the RPC of this name.
func (b *broker) CallTool(ctx context.Context, req *toolbrokerv1.CallToolRequest) (*toolbrokerv1.CallToolResponse, error) {
	return b.call(ctx, req, nil)
}

// request is what the two RPCs that call have in common.
type request interface {
	GetToolId() string
	GetToolCallId() string
	GetArguments() []byte
	GetAnswer() *toolbrokerv1.UserAnswer
}

// call answers a request; tell is told of an agent to which the tool delegates.
func (b *broker) call(ctx context.Context, req request, tell func(event.Event)) (*toolbrokerv1.CallToolResponse, error) {
	grant, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	claims, ok := rpc.ClaimsFrom(ctx)
	if !ok {
		return nil, fault.Wrap(errors.New("no capability behind the door"), fault.Internal, "rpc.CallTool")
	}
	token, _ := rpc.TokenFrom(ctx) // there, where there are claims
	// The ledger has a call under the envelope's key, and the event log under its id:
	// they are compared at the end of a run, and a person's approval is for one of them.
	if req.GetToolCallId() != grant.Envelope().IdempotencyKey {
		return nil, fault.New(fault.InvalidRequest, "rpc.CallTool", fault.Detail("tool_call_id: must be the envelope's idempotency_key"))
	}
	asked := call.Request{
		Grant: grant, Allowed: claims.Tools, Approve: claims.ApproveTools, ToolID: req.GetToolId(), ToolCallID: req.GetToolCallId(), Arguments: req.GetArguments(),
		Token: func() string { return token }, Tell: tell,
	}
	if given := req.GetAnswer(); given != nil {
		asked.Answer = &call.UserAnswer{AskedBy: given.GetRunId(), Key: given.GetToolCallId(), Form: given.GetForm(), Dismissed: given.GetDismissed()}
	}
	a, err := b.caller.Call(ctx, asked)
	if err != nil {
		return nil, err
	}
	res := &toolbrokerv1.CallToolResponse{Result: a.JSON, IsError: a.IsError, Truncated: a.Truncated, Replayed: a.Replayed, ResultRef: a.Ref}
	if a.Interrupt != nil {
		if res.Interrupt, err = event.InterruptBody(*a.Interrupt); err != nil {
			return nil, fault.Wrap(err, fault.Internal, "rpc.CallTool")
		}
	}
	return res, nil
}
