package facadeclient

import (
	"context"
	"errors"
	"io"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
)

type toolCaller struct {
	authority
	client toolbrokerv1connect.ToolBrokerServiceClient
}

// Call names the tool and nothing else; its id is the key under which the call
// happens at most once. A lost answer is asked for again under that key. A
// caller that did so under a new one would make the tool act twice, so what stays
// unknown is said to be: tool_outcome_unknown.
func (t toolCaller) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	token, err := t.token(capability.ToolBroker)
	if err != nil {
		return harness.ToolResult{}, err
	}
	ctx = rpc.WithToken(ctx, token)
	req := &toolbrokerv1.CallToolRequest{Envelope: t.envelope(c.CallID).Proto(), ToolId: c.ToolID, ToolCallId: c.CallID, Arguments: c.Arguments}
	if a := c.Answer; a != nil {
		req.Answer = &toolbrokerv1.UserAnswer{RunId: a.RunID, ToolCallId: a.CallID, Form: a.Form, Dismissed: a.Dismissed}
	}
	var res *toolbrokerv1.CallToolResponse
	out := repeat(ctx, t.pause, func(ctx context.Context) error {
		var err error
		if c.Tell != nil {
			res, err = t.stream(ctx, req, c.Tell)
		} else {
			res, err = t.client.CallTool(ctx, req)
		}
		return err
	})
	switch {
	case out.err == nil:
		r := harness.ToolResult{Result: res.GetResult(), IsError: res.GetIsError(), Ref: res.GetResultRef()}
		if len(res.GetInterrupt()) > 0 {
			asks, err := event.DecodeInterrupt(res.GetInterrupt(), event.Bounds{})
			if err != nil {
				return harness.ToolResult{}, fault.Wrap(err, fault.Protocol, "facadeclient.Call")
			}
			r.Asks = &asks
		}
		return r, nil
	case out.mayHaveActed(ctx):
		return harness.ToolResult{}, fault.Wrap(out.err, fault.ToolOutcomeUnknown, "facadeclient.Call")
	default:
		return harness.ToolResult{}, out.err
	}
}

// stream makes a call that lets another agent work, and tells of it.
func (t toolCaller) stream(ctx context.Context, req *toolbrokerv1.CallToolRequest, tell func(context.Context, event.Draft) error) (*toolbrokerv1.CallToolResponse, error) {
	const op = "facadeclient.stream"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	s, err := t.client.StreamTool(ctx, &toolbrokerv1.StreamToolRequest{
		Envelope: req.GetEnvelope(), ToolId: req.GetToolId(), ToolCallId: req.GetToolCallId(), Arguments: req.GetArguments(), Answer: req.GetAnswer(),
	})
	if err != nil {
		return nil, err
	}
	for {
		m, err := s.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fault.Wrap(errNoResult, fault.DependencyUnavailable, op)
		case err != nil:
			return nil, err
		case m.GetResult() != nil:
			return m.GetResult(), nil
		case m.GetEvent() == nil:
			return nil, fault.Wrap(errNoResult, fault.Protocol, op)
		}
		e, err := eventproto.FromProto(m.GetEvent())
		if err != nil {
			return nil, fault.Wrap(err, fault.Protocol, op)
		}
		if err := tell(ctx, e.Draft()); err != nil {
			return nil, err
		}
	}
}

// errNoResult is a stream without the answer that it ends with.
var errNoResult = errors.New("the ToolBroker's stream has no result")
