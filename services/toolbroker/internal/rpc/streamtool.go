package rpc

import (
	"context"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
)

// StreamTool implements the RPC of this name.
func (b *broker) StreamTool(ctx context.Context, req *toolbrokerv1.StreamToolRequest, out toolbrokerv1connect.ToolBrokerServiceStreamToolServerStream) error {
	t := &teller{out: out}
	res, err := b.call(ctx, req, t.tell)
	t.end() // the call may go on, where its outcome is recorded
	if err != nil {
		return err
	}
	return out.Send(&toolbrokerv1.StreamToolResponse{Step: &toolbrokerv1.StreamToolResponse_Result{Result: res}})
}

// teller sends events for as long as the request is answered.
type teller struct {
	mu   sync.Mutex
	out  toolbrokerv1connect.ToolBrokerServiceStreamToolServerStream
	over bool
}

// tell has no error: a worker that is gone ends the request, and with it the call.
func (t *teller) tell(e event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	p, err := eventproto.ToProto(e)
	if err != nil { // it was lawful in its own run, and is too much for another
		return
	}
	t.over = t.out.Send(&toolbrokerv1.StreamToolResponse{Step: &toolbrokerv1.StreamToolResponse_Event{Event: p}}) != nil
}

func (t *teller) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}
