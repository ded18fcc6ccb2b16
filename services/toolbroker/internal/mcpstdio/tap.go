package mcpstdio

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// errWithdrawn keeps a request from leaving after its caller was told that
// nothing was sent. The SDK takes the code to mean that this one message was
// refused and that the connection is well.
var errWithdrawn = &jsonrpc.Error{Code: -32005, Message: "mcpstdio: the request was withdrawn before it was sent"}

// exchange is one request and its answer.
type exchange struct {
	method string
	// by is when the request must have left at the latest; zero is any time.
	by time.Time

	mu        sync.Mutex
	withdrawn bool
	sent      bool
	answered  bool
	answer    Answer
}

// Answer is what a server answered to a request, as it stands in its message.
type Answer struct {
	// Result is JSON text that nobody has checked; it may hold bytes that are not
	// UTF-8. It is empty when Error is set.
	Result json.RawMessage
	// Error is the JSON-RPC error that came in place of a result.
	Error *jsonrpc.Error
}

// leave asks whether the request may leave now, and from then on it counts as
// sent: a write that fails half way has sent something.
func (x *exchange) leave() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.withdrawn || (!x.by.IsZero() && !time.Now().Before(x.by)) {
		x.withdrawn = true
		return errWithdrawn
	}
	x.sent = true
	return nil
}

func (x *exchange) arrive(r *jsonrpc.Response) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	x.answer = Answer{Result: r.Result}
	if r.Error != nil {
		wire, ok := errors.AsType[*jsonrpc.Error](r.Error)
		if !ok {
			wire = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: r.Error.Error()}
		}
		x.answer = Answer{Error: wire}
	}
}

// settle says what became of the request. From then on it cannot leave any more.
func (x *exchange) settle() (a Answer, answered, sent bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withdrawn = true
	return x.answer, x.answered, x.sent
}

type exchangeKey struct{}

// tap watches the connection that the SDK reads and writes. The context of a
// call reaches the write of its request, and carries the exchange there.
type tap struct {
	mcp.Connection

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*exchange
}

func newTap(c mcp.Connection) *tap {
	return &tap{Connection: c, waiting: make(map[jsonrpc.ID]*exchange)}
}

// Write sends a message, if its exchange still wants it.
func (t *tap) Write(ctx context.Context, msg jsonrpc.Message) error {
	x, watched := ctx.Value(exchangeKey{}).(*exchange)
	req, isRequest := msg.(*jsonrpc.Request)
	if !watched || !isRequest || !req.IsCall() || req.Method != x.method {
		return t.Connection.Write(ctx, msg)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.leave(); err != nil {
		return err
	}
	t.mu.Lock()
	t.waiting[req.ID] = x
	t.mu.Unlock()
	return t.Connection.Write(ctx, msg)
}

// Read gives the SDK the next message that it has to see. Of what a server says
// unasked nothing concerns this version, and a flood of it would only pile up in
// the SDK's queue.
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
				x.arrive(m)
			}
		case *jsonrpc.Request:
			if !m.IsCall() {
				continue
			}
		}
		return msg, nil
	}
}

// forget stops waiting for the answer to an exchange.
func (t *tap) forget(x *exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, other := range t.waiting {
		if other == x {
			delete(t.waiting, id)
		}
	}
}
