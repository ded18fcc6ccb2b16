package facadeclient

import (
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

// client is a worker's connector with the tokens of the run.
type client struct {
	*brokers
	harness.Facades
	point *point
}

func newClient(t *testing.T) *client {
	t.Helper()
	b := newBrokers(t)
	c := &client{brokers: b, point: &point{last: 0}}
	c.Facades = c.facades(t, c.endpoint("brokers"), b.tokens())
	return c
}

func (c *client) endpoint(name string) rpc.Endpoint {
	return rpc.Endpoint{Address: c.url, ID: rpctest.ServiceID(name)}
}

func (c *client) facades(t *testing.T, ep rpc.Endpoint, tokens []session.Token) harness.Facades {
	t.Helper()
	conn, err := New(Endpoints{ToolBroker: ep, ThreadState: ep, Memory: ep, FileBroker: ep, ModelProxy: ep, ModelAlias: "main"}, testAdapter,
		c.stand.Source(t, rpctest.SandboxID()), c.stand.Telemetry)
	must(t, err)
	t.Cleanup(conn.Close)
	conn.pause = time.Millisecond
	f, err := conn.Connect(c.env(), tokens, c.point)
	must(t, err)
	return f
}

func (b *brokers) env() fence.Envelope {
	e := b.stand.Envelope()
	e.IdempotencyKey = "run"
	return e
}

// tokens of the run for every audience that a worker calls.
func (b *brokers) tokens() []session.Token {
	var out []session.Token
	for _, a := range []capability.Audience{
		capability.ToolBroker, capability.ThreadState, capability.Memory, capability.FileBroker, capability.ModelProxy,
	} {
		c := capability.Claims{
			Audience: a, Subject: rpctest.SandboxID(), BindingID: rpctest.BindingID, Epoch: rpctest.Epoch, Generation: rpctest.Generation, RunID: rpctest.RunID,
		}
		switch a {
		case capability.ToolBroker:
			c.Tools = []string{"fs.read"}
		case capability.FileBroker:
			c.Handles = []string{"handle-1"}
		case capability.Memory:
			c.MemoryScopes = []string{"user"}
		case capability.HarnessWorker, capability.ThreadState:
		case capability.ModelProxy:
			c.ModelAlias = "main"
		}
		out = append(out, session.Token{Audience: string(a), Token: b.stand.Minter.Mint(c)})
	}
	return out
}

// point is a run whose last event is the one that the Stand has committed.
type point struct {
	mu    sync.Mutex
	last  uint64
	err   error
	asked event.InterruptRequested

	covered, committed, moved bool
	// revision at which it was interrupted.
	revision uint64
}

func (p *point) Cover() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.covered = true
	return p.last, p.err
}

func (p *point) CoverInterrupt() (uint64, event.InterruptRequested, error) {
	last, err := p.Cover()
	return last, p.asked, err
}

func (p *point) Committed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = true
}

func (p *point) Interrupted(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision = revision
}

func (p *point) Moved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = true
}

// first is true for the first n times.
func first(n int) func(string, string) bool {
	return func(got, want string) bool {
		if got != want || n == 0 {
			return false
		}
		n--
		return true
	}
}

var testCodec = harness.Codec{Name: "test", Version: 1}

var call = harness.ToolCall{CallID: "call-1", ToolID: "fs.read", Arguments: []byte(`{"path":"a"}`)}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want code %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
