package brokers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
)

// The tools of the suite.
const (
	// Echo gives its arguments back.
	Echo = "test.echo"
	// Slow lasts until its caller goes away.
	Slow = "test.slow"
	// Fail says that it failed.
	Fail = "test.fail"
	// Down has a server that does not answer.
	Down = "test.down"
	// Denied is one that the user may not call.
	Denied = "test.denied"
	// Write needs an approval for each call.
	Write = "test.write"
	// Delegate lets another agent work, which says one sentence and calls Echo.
	Delegate = "test.delegate"
)

// slowest is how long the slow tool lasts at most.
const slowest = 30 * time.Second

// Tools are their descriptors.
func Tools() []harness.Tool {
	open := json.RawMessage(`{"type":"object"}`)
	out := []harness.Tool{{
		ID: Echo, OfferedName: "test_echo", Description: "Gives back what it is given.", ReadOnly: true,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`),
	}}
	for _, id := range []string{Slow, Fail, Down, Denied} {
		name := strings.ReplaceAll(id, ".", "_")
		out = append(out, harness.Tool{ID: id, OfferedName: name, Description: "A tool of the suite.", InputSchema: open})
	}
	out = append(out, harness.Tool{ID: Delegate, OfferedName: "test_delegate", Description: "Lets another agent work.", InputSchema: open, Delegates: true})
	return append(out, harness.Tool{
		ID: Write, OfferedName: "test_write", Description: "Writes, once a person has allowed it.", ApprovalRequired: true,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`),
	})
}

// IDs of the tools.
func IDs() []string { return []string{Echo, Slow, Fail, Down, Denied, Write, Delegate} }

// ListTools is the control plane's.
func (*Brokers) ListTools(context.Context, *toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
	return nil, fault.New(fault.NotImplemented, "brokers.ListTools")
}

// CallTool goes the way of the real broker: at most once for its key.
func (b *Brokers) CallTool(ctx context.Context, req *toolbrokerv1.CallToolRequest) (*toolbrokerv1.CallToolResponse, error) {
	const op = "brokers.CallTool"
	x, err := b.enter(ctx, "CallTool")
	if err != nil {
		return nil, err
	}
	switch req.GetToolId() {
	case Denied:
		return nil, fault.New(fault.ToolDenied, op)
	case Down:
		return nil, fault.New(fault.ToolUnavailable, op)
	case Write:
		if !x.allows(req.GetToolCallId()) {
			return nil, fault.New(fault.ApprovalRequired, op)
		}
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	// Whose credential is added follows from the record, and from nothing that a
	// worker says.
	r, err := b.stand.Writer.Backend().Load(ctx, g.Envelope().BindingID)
	if err != nil {
		return nil, err
	}
	effect := binding.Effect{Key: g.Envelope().IdempotencyKey, Kind: "tool", ArgsDigest: req.GetToolId() + string(req.GetArguments())}
	out, err := b.effects.Do(ctx, g, effect, func(ctx context.Context) ([]byte, error) { return x.act(ctx, req, CredentialOf(r.Identity.Subject)) })
	if err != nil {
		return nil, err
	}
	return &toolbrokerv1.CallToolResponse{Result: out.Body, IsError: req.GetToolId() == Fail, Replayed: out.Replayed}, nil
}

// StreamTool tells of the agent that Delegate lets work, once.
func (b *Brokers) StreamTool(ctx context.Context, req *toolbrokerv1.StreamToolRequest, out toolbrokerv1connect.ToolBrokerServiceStreamToolServerStream) error {
	id := req.GetToolCallId()
	at := time.Now()
	for n, d := range []event.Data{
		event.NamespaceEntered{AgentID: "helper", AgentName: "Helper", ParentToolCallID: id},
		event.TextStarted{MessageID: "helper.m1"},
		event.TextDelta{MessageID: "helper.m1", Delta: DelegateSays},
		event.TextFinished{MessageID: "helper.m1"},
		event.ToolStarted{ToolCallID: "helper.c1", ToolName: Echo, Arguments: `{"text":"below"}`},
		event.ToolFinished{ToolCallID: "helper.c1", Result: `{"content":[]}`},
		event.NamespaceExited{AgentID: "helper", ParentToolCallID: id, Outcome: event.NamespaceSuccess},
	} {
		p, err := eventproto.ToProto(event.Draft{Namespace: []string{id}, Data: d}.Event("run-of-helper", "conversation-of-helper", uint64(max(n, 0)), at))
		if err != nil {
			return err
		}
		if err := out.Send(&toolbrokerv1.StreamToolResponse{Step: &toolbrokerv1.StreamToolResponse_Event{Event: p}}); err != nil {
			return err
		}
	}
	res, err := b.CallTool(ctx, &toolbrokerv1.CallToolRequest{
		Envelope: req.GetEnvelope(), ToolId: req.GetToolId(), ToolCallId: req.GetToolCallId(), Arguments: req.GetArguments(), Answer: req.GetAnswer(),
	})
	if err != nil {
		return err
	}
	return out.Send(&toolbrokerv1.StreamToolResponse{Step: &toolbrokerv1.StreamToolResponse_Result{Result: res}})
}

// DelegateSays is what the agent says that Delegate lets work.
const DelegateSays = "I am another agent."

// CredentialOf is the one of a caller at all tools.
func CredentialOf(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return "credential-" + hex.EncodeToString(sum[:])
}

func (x *Binding) act(ctx context.Context, req *toolbrokerv1.CallToolRequest, credential string) ([]byte, error) {
	x.acts(req.GetToolCallId()+" "+req.GetToolId()+" "+string(req.GetArguments()), credential)
	text := "echo of " + string(req.GetArguments())
	switch req.GetToolId() {
	case Fail:
		text = "it did not work"
	case Slow:
		x.slow <- struct{}{}
		select {
		case <-ctx.Done():
		case <-time.After(slowest):
		}
	}
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return json.Marshal(map[string][]content{"content": {{"text", text}}})
}
