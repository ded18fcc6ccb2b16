package mcpcall

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

// Bounds of a list of tools.
const (
	maxPages     = 32
	maxTools     = 2048
	maxListBytes = 32 << 20
	maxTTL       = 24 * time.Hour
)

// NewClient is the client of every transport. It offers elicitation by form, and
// neither roots (a server widens its folders by them) nor sampling.
func NewClient(o mcp.ClientOptions) *mcp.Client {
	o.Capabilities = &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}}
	// A second tools/call is never the SDK's to send.
	o.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
	return mcp.NewClient(&mcp.Implementation{Name: ClientName, Version: ClientVersion}, &o)
}

// What this client says that it is.
const (
	ClientName    = "cofferdam-toolbroker"
	ClientVersion = "1"
)

// Peer makes requests of a session. Its methods can be called from any goroutine.
type Peer struct {
	// Session is negotiated, with a tap that knows exchanges.
	Session *mcp.ClientSession
	// Forget is told of an exchange for whose answer nobody waits any more.
	Forget func(*Exchange)
	// Headers says that the transport puts arguments into headers.
	Headers bool

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // requests that the SDK works on; begun under mu while not closed
}

// Stateless is the first revision that knows no sessions, and in which a question
// to the user is a result with a state to come back with.
const Stateless = "2026-07-28"

// Option of a call.
type Option func(*options)

type options struct {
	input *Input
	idle  time.Duration
}

// WithInput brings the answer to a question that was asked in an earlier call.
func WithInput(in Input) Option { return func(o *options) { o.input = &in } }

// WithIdle gives a call up that neither is answered nor tells of progress for so
// long; 0 waits for as long as ctx does.
func WithIdle(d time.Duration) Option { return func(o *options) { o.idle = d } }

// errIdle is why a call was given up.
var errIdle = &LoggableError{Reason: "the server told of no progress for too long"}

// Call calls a tool, whose arguments are one JSON object. The request leaves
// before by or not at all; a zero by is any time. Errors are ErrNotSent or
// ErrNoAnswer with the reason; an error that the server answered is an Answer.
// Call returns when ctx ends, whatever the server does.
func (p *Peer) Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time, opts ...Option) (Answer, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	x := &Exchange{Method: methodCall, by: by, input: o.input, token: rand.Text()}
	params.SetProgressToken(x.token)
	if o.input != nil && o.input.Key != "" {
		if p.Session.InitializeResult().ProtocolVersion < Stateless {
			return Answer{}, fmt.Errorf("%w: the server no longer speaks the revision in which it asked", ErrNotSent)
		}
		result, err := elicited(*o.input)
		if err != nil {
			return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		params.RequestState, params.InputResponses = o.input.State, mcp.InputResponseMap{o.input.Key: result}
	}
	if o.idle > 0 {
		bounded, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(o.idle, func() { cancel(errIdle) })
		defer timer.Stop()
		x.progressed = func() { timer.Reset(o.idle) }
		ctx = bounded
	}
	return p.do(ctx, x, func(ctx context.Context) error {
		_, err := p.Session.CallTool(ctx, params)
		return err
	})
}

// elicited is an input as the SDK sends it.
func elicited(in Input) (*mcp.ElicitResult, error) {
	out := &mcp.ElicitResult{Action: string(in.Action)}
	if in.Content == nil {
		return out, nil
	}
	d := json.NewDecoder(bytes.NewReader(in.Content))
	d.UseNumber()
	return out, d.Decode(&out.Content)
}

// List is what a server says that its tools are.
type List struct {
	// Tools are as they stand in the answers, so that one that is malformed spoils
	// no other.
	Tools []json.RawMessage
	// TTL is how long the server says that this holds, of all pages the shortest;
	// zero where it says nothing.
	TTL time.Duration
}

// Tools asks for all pages of the list of tools. Tools that want arguments in
// headers in a way that the protocol forbids are left out, as it demands.
func (p *Peer) Tools(ctx context.Context) (List, error) {
	var all List
	cursor, size := "", 0
	for n := range maxPages {
		valid := make(chan *mcp.ListToolsResult, 1)
		a, err := p.do(ctx, &Exchange{Method: methodList, headers: p.Headers}, func(ctx context.Context) error {
			res, err := p.Session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
			valid <- res
			return err
		})
		if err != nil {
			return List{}, err
		}
		if a.Error != nil {
			return List{}, fmt.Errorf("mcp: list of tools: %w", a.Error)
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
			TTL   json.RawMessage   `json:"ttlMs"`
		}
		if err := json.Unmarshal(a.Result, &page); err != nil {
			return List{}, errors.New("mcp: list of tools: not in the form of the protocol")
		}
		all.Tools = append(all.Tools, page.Tools...)
		if ttl := milliseconds(page.TTL); n == 0 || ttl < all.TTL {
			all.TTL = ttl
		}
		if p.Headers {
			select {
			case res := <-valid:
				all.Tools = allowedHeaders(all.Tools, len(all.Tools)-len(page.Tools), res)
			default: // the context has ended; the next page says so
			}
		}
		if size += len(a.Result); len(all.Tools) > maxTools || size > maxListBytes {
			return List{}, fmt.Errorf("mcp: list of tools: more than %d, or %d bytes", maxTools, maxListBytes)
		}
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
	return List{}, fmt.Errorf("mcp: list of tools: more than %d pages", maxPages)
}

// milliseconds is a time to live, or zero for what is none.
func milliseconds(raw json.RawMessage) time.Duration {
	var ms float64
	if json.Unmarshal(raw, &ms) != nil || ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, maxTTL.Seconds()*1000)) * time.Millisecond
}

// allowedHeaders leaves out, from the index on, the tools that want headers and
// that the SDK has refused.
func allowedHeaders(tools []json.RawMessage, from int, res *mcp.ListToolsResult) []json.RawMessage {
	ok := map[string]bool{}
	if res != nil {
		for _, t := range res.Tools {
			ok[t.Name] = true
		}
	}
	kept := tools[:from:from]
	for _, raw := range tools[from:] {
		if !wantsHeaders(raw) || ok[nameOf(raw)] {
			kept = append(kept, raw)
		}
	}
	return kept
}

// do lets the SDK make a request and decides by the tap what became of it. The
// SDK's own error is only the reason.
func (p *Peer) do(ctx context.Context, x *Exchange, request func(context.Context) error) (Answer, error) {
	ended := make(chan error, 1)
	if !p.begin(func() { ended <- guarded(context.WithValue(ctx, exchangeKey{}, x), request) }) {
		return Answer{}, fmt.Errorf("%w: the server is closed", ErrNotSent)
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done(): // the SDK may be blocked in a write
		err = ctx.Err()
	}
	if p.Forget != nil {
		p.Forget(x)
	}
	return x.outcome(ctx, err)
}

// begin lets the SDK work on a request, unless the peer is being closed.
func (p *Peer) begin(request func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.calls.Go(request)
	}
	return !p.closed
}

// Shut lets no further request begin.
func (p *Peer) Shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Wait waits for the requests that have begun; Shut comes before it.
func (p *Peer) Wait() { p.calls.Wait() }

// LoggableError is an error whose text says nothing that came from a server.
type LoggableError struct{ Reason string }

// Error is the reason.
func (e *LoggableError) Error() string { return e.Reason }

// guarded keeps an answer that makes the SDK panic from ending the broker.
func guarded(ctx context.Context, request func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("mcp: the SDK panicked: %v", r)
		}
	}()
	return request(ctx)
}
