package facadeclient

import (
	"context"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/services/worker/internal/harness"
)

// StreamTool tells of one event before the answer of CallTool.
func (b *brokers) StreamTool(ctx context.Context, req *toolbrokerv1.StreamToolRequest, out toolbrokerv1connect.ToolBrokerServiceStreamToolServerStream) error {
	d := event.Draft{
		Namespace: []string{req.GetToolCallId()}, Data: event.NamespaceEntered{AgentID: "helper", AgentName: "Helper", ParentToolCallID: req.GetToolCallId()},
	}
	p, err := eventproto.ToProto(d.Event("run-2", "conversation-2", 0, time.Now()))
	if err != nil {
		return err
	}
	if err := out.Send(&toolbrokerv1.StreamToolResponse{Step: &toolbrokerv1.StreamToolResponse_Event{Event: p}}); err != nil {
		return err
	}
	res, err := b.CallTool(ctx, &toolbrokerv1.CallToolRequest{
		Envelope: req.GetEnvelope(), ToolId: req.GetToolId(), ToolCallId: req.GetToolCallId(), Arguments: req.GetArguments(), Answer: req.GetAnswer(),
	})
	if err != nil {
		return err
	}
	return out.Send(&toolbrokerv1.StreamToolResponse{Step: &toolbrokerv1.StreamToolResponse_Result{Result: res}})
}

func delegating(told *[]event.Draft) harness.ToolCall {
	c := call
	c.Tell = func(_ context.Context, d event.Draft) error {
		*told = append(*told, d)
		return nil
	}
	return c
}

func TestACallThatDelegates(t *testing.T) {
	c := newClient(t)
	var told []event.Draft
	res, err := c.Tools.Call(t.Context(), delegating(&told))
	must(t, err)
	if string(res.Result) != `{"content":[]}` || len(c.acted) != 1 {
		t.Errorf("got %s; the tool acted %d times", res.Result, len(c.acted))
	}
	if len(told) != 1 || told[0].Data.Type() != event.TypeNamespaceEntered || len(told[0].Namespace) != 1 || told[0].Namespace[0] != call.CallID {
		t.Errorf("told %+v", told)
	}
}

// A stream that was lost is asked for again under the same key, and a listener that
// does not want to hear ends the call.
func TestACallThatDelegatesIsCutOff(t *testing.T) {
	c := newClient(t)
	twice := first(2)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return twice(p, toolbrokerv1connect.ToolBrokerServiceStreamToolProcedure) }
	})
	var told []event.Draft
	_, err := c.Tools.Call(t.Context(), delegating(&told))
	must(t, err)
	if len(c.acted) != 1 {
		t.Errorf("the tool acted %d times", len(c.acted))
	}
	over := delegating(&told)
	over.CallID = "call-2"
	ctx, cancel := context.WithCancel(t.Context())
	over.Tell = func(context.Context, event.Draft) error {
		cancel()
		return fault.From(ctx.Err(), "test")
	}
	_, err = c.Tools.Call(ctx, over)
	wantCode(t, err, fault.Cancelled)
}
