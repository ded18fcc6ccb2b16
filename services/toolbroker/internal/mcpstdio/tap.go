package mcpstdio

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// tap watches the connection that the SDK reads and writes. The context of a
// call reaches the write of its request, and carries the exchange there.
type tap struct {
	mcp.Connection

	// changed is told that the server's list of tools has changed.
	changed chan<- struct{}

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*mcpcall.Exchange
}

func newTap(c mcp.Connection, changed chan<- struct{}) *tap {
	return &tap{Connection: c, changed: changed, waiting: make(map[jsonrpc.ID]*mcpcall.Exchange)}
}

// Write sends a message, if its exchange still wants it.
func (t *tap) Write(ctx context.Context, msg jsonrpc.Message) error {
	x := mcpcall.From(ctx)
	req, isRequest := msg.(*jsonrpc.Request)
	if x == nil || !isRequest || !req.IsCall() || req.Method != x.Method {
		return t.Connection.Write(ctx, msg)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.Leave(); err != nil {
		return err
	}
	t.mu.Lock()
	t.waiting[req.ID] = x
	t.mu.Unlock()
	return t.Connection.Write(ctx, msg)
}

// Read gives the SDK the next message that it has to see. Of what a server says
// unasked only a changed list of tools concerns this version, and a flood of it
// would only pile up in the SDK's queue.
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := t.Connection.Read(ctx)
		if err != nil {
			return nil, err
		}
		switch m := msg.(type) {
		case *jsonrpc.Response:
			t.mu.Lock()
			x := t.waiting[m.ID]
			delete(t.waiting, m.ID)
			t.mu.Unlock()
			if x != nil {
				return x.Arrive(m), nil
			}
		case *jsonrpc.Request:
			if !m.IsCall() {
				mcpcall.Notified(m, t.changed)
				continue
			}
		}
		return msg, nil
	}
}

// forget stops waiting for the answer to an exchange.
func (t *tap) forget(x *mcpcall.Exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, other := range t.waiting {
		if other == x {
			delete(t.waiting, id)
		}
	}
}
