package mcpstdio

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// maxAbandoned bounds how many calls are remembered for whose answer nobody waits.
const maxAbandoned = 1024

// tap watches the connection that the SDK reads and writes. The context of a
// call reaches the write of its request, and carries the exchange there.
type tap struct {
	mcp.Connection

	// changed is told that the server's list of tools has changed.
	changed chan<- struct{}

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*mcpcall.Exchange
	// abandoned are calls for whose answer nobody waits and that the server may
	// still work on.
	abandoned map[jsonrpc.ID]bool
}

func newTap(c mcp.Connection, changed chan<- struct{}) *tap {
	return &tap{Connection: c, changed: changed, waiting: make(map[jsonrpc.ID]*mcpcall.Exchange), abandoned: make(map[jsonrpc.ID]bool)}
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
// unasked a changed list of tools and progress are noted here, and a flood of it
// would only pile up in the SDK's queue. What it asks is answered here: a server
// that does not read the answer is ended (see input).
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
			delete(t.abandoned, m.ID)
			t.mu.Unlock()
			if x != nil {
				return x.Arrive(m), nil
			}
		case *jsonrpc.Request:
			if !m.IsCall() {
				mcpcall.Notified(m, t.changed)
				t.progressed(m)
				continue
			}
			if err := t.Connection.Write(ctx, mcpcall.Respond(t.asking(), m)); err != nil {
				return nil, err
			}
			continue
		}
		return msg, nil
	}
}

// asking is the call in the midst of which the server asks something, or nil.
// Nothing on this transport says which one it is, so it is only known where no
// other can be meant: what concerns one user is never shown to another.
func (t *tap) asking() *mcpcall.Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) != 1 || len(t.abandoned) > 0 {
		return nil
	}
	for _, x := range t.waiting {
		return x
	}
	return nil
}

// progressed tells the calls of a notification: the one whose token it has.
func (t *tap) progressed(n *jsonrpc.Request) {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.waiting))
	t.mu.Unlock()
	for _, x := range all {
		x.Progressed(n)
	}
}

// forget stops waiting for the answer to an exchange.
func (t *tap) forget(x *mcpcall.Exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, other := range t.waiting {
		if other == x {
			delete(t.waiting, id)
			if len(t.abandoned) < maxAbandoned { // one is enough to say nothing for certain
				t.abandoned[id] = true
			}
		}
	}
}
