package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

const (
	// messageTimeout bounds a message that asks for nothing, and the end of a
	// session.
	messageTimeout = 3 * time.Second
	// maxSession bounds the id of a session, in bytes.
	maxSession = 512

	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// What became of a request, without a word of the server's.
var (
	errExpired = &mcpcall.LoggableError{Reason: "the server no longer knows the session"}
	errClosed  = &mcpcall.LoggableError{Reason: "the session is over"}
)

// tap is what the SDK takes for the network.
type tap struct {
	cfg Config

	// base lives until close, and calls until stopCalls.
	base, calls       context.Context //nolint:containedctx // the lives of what the SDK does in the background
	endBase, endCalls context.CancelFunc
	session, version  atomic.Pointer[string]
	changed, done     chan struct{}
	over              sync.Once
	mu                sync.Mutex
	closed            bool
	running           sync.WaitGroup // begun under mu while not closed
	// calls that are under way, and whether there was one whose answer did not come:
	// the server may still work on it. Under mu.
	underway  map[*mcpcall.Exchange]bool
	abandoned bool
}

func newTap(ctx context.Context, cfg Config) *tap {
	t := &tap{cfg: cfg, changed: make(chan struct{}, 1), done: make(chan struct{}), underway: make(map[*mcpcall.Exchange]bool)}
	t.base, t.endBase = context.WithCancel(ctx)
	t.calls, t.endCalls = context.WithCancel(t.base)
	return t
}

func (t *tap) negotiated(version string) { t.version.Store(&version) }

// lost ends the session for everybody.
func (t *tap) lost() { t.over.Do(func() { close(t.done) }) }

func (t *tap) stopCalls() { t.endCalls() }

// close waits for what the SDK still has on the way.
func (t *tap) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.lost()
	t.endCalls()
	t.endBase()
	t.running.Wait()
	if c, ok := t.cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *tap) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running.Add(1)
	}
	return !t.closed
}

// RoundTrip implements http.RoundTripper for the SDK.
func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.begin() {
		return nil, errClosed
	}
	defer t.running.Done()
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body) // the SDK's own, out of memory
		if err = errors.Join(err, req.Body.Close()); err != nil {
			return nil, err
		}
	}
	switch req.Method {
	case http.MethodPost:
		return t.post(req, body)
	case http.MethodDelete:
		return t.message(req, nil)
	default: // streams are read by listen
		return respond(req, http.StatusMethodNotAllowed, nil), nil
	}
}

func (t *tap) post(req *http.Request, body []byte) (*http.Response, error) {
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return nil, err
	}
	call, ok := msg.(*jsonrpc.Request)
	if !ok || !call.IsCall() {
		return t.message(req, body)
	}
	select {
	case <-t.done:
		return nil, errClosed
	default:
	}
	ctx, cancel := within(req.Context(), t.calls)
	defer cancel()
	answer, session, err := t.exchange(ctx, req, body, call)
	if err != nil {
		return nil, err
	}
	text, err := jsonrpc.EncodeMessage(answer)
	if err != nil {
		return nil, err
	}
	res := respond(req, http.StatusOK, text)
	if session != "" {
		res.Header.Set(headerSession, session)
	}
	return res, nil
}

// exchange sends a request and reads its answer to the end.
func (t *tap) exchange(ctx context.Context, req *http.Request, body []byte, call *jsonrpc.Request) (*jsonrpc.Response, string, error) {
	x := mcpcall.From(ctx)
	if x != nil && x.Method != call.Method {
		x = nil
	}
	if x != nil {
		t.mu.Lock()
		t.underway[x] = true
		t.mu.Unlock()
		defer t.left(x)
	}
	open := func() (io.ReadCloser, error) { return &gate{x: x, r: bytes.NewReader(body)}, nil }
	res, err := t.send(ctx, req, open, int64(len(body)), x)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	session := ""
	if call.Method == "initialize" {
		if session = res.Header.Get(headerSession); len(session) > maxSession {
			return nil, "", &mcpcall.LoggableError{Reason: "the server's session id is too long"}
		}
		if session != "" {
			t.session.Store(&session)
		}
	}
	answer, err := t.read(ctx, x, res, call.ID)
	if err != nil {
		return nil, "", err
	}
	if x != nil {
		answer = x.Arrive(answer)
	}
	return answer, session, nil
}

func (t *tap) left(x *mcpcall.Exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.underway, x)
	t.abandoned = t.abandoned || x.Abandoned()
}

// asking is the call in the midst of which the server asks something outside of
// the streams of calls, or nil. It is only known where no other can be meant: what
// concerns one user is never shown to another.
func (t *tap) asking() *mcpcall.Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.underway) != 1 || t.abandoned {
		return nil
	}
	for x := range t.underway {
		return x
	}
	return nil
}

// send sends with the credential. The transport may open the body anew only
// after an attempt of which nothing left.
func (t *tap) send(ctx context.Context, req *http.Request, open func() (io.ReadCloser, error), length int64, x *mcpcall.Exchange) (*http.Response, error) {
	out := req.Clone(ctx)
	if t.cfg.Authorize != nil {
		bounded := ctx
		if x != nil {
			if by, ok := x.By(); ok {
				var cancel context.CancelFunc
				bounded, cancel = context.WithDeadline(ctx, by)
				defer cancel()
			}
		}
		if err := t.cfg.Authorize(bounded, out.Header); err != nil {
			return nil, fmt.Errorf("%w: %w", &mcpcall.LoggableError{Reason: "there is no credential"}, err)
		}
	}
	out.Body, out.GetBody, out.ContentLength = http.NoBody, nil, 0
	if open != nil {
		body, err := open()
		if err != nil {
			return nil, err
		}
		out.Body, out.GetBody, out.ContentLength = body, open, length
	}
	res, err := t.cfg.Transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	return res, t.status(out, res)
}

// status looks for what concerns more than one request.
func (t *tap) status(req *http.Request, res *http.Response) error {
	switch {
	case res.StatusCode == http.StatusNotFound && req.Header.Get(headerSession) != "":
		t.lost()
		return errors.Join(errExpired, res.Body.Close())
	case res.StatusCode == http.StatusUnauthorized && t.cfg.Refused != nil:
		t.cfg.Refused(req.Header)
	}
	return nil
}

// message sends what has no answer: a notification, a response, the end of the
// session. It outlives the calls by a bounded time.
func (t *tap) message(req *http.Request, body []byte) (*http.Response, error) {
	ctx, cancel := within(req.Context(), t.base)
	defer cancel()
	bound := messageTimeout
	if t.version.Load() == nil { // a message of the negotiation, which has its own
		bound = t.cfg.ConnectTimeout
	}
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	var open func() (io.ReadCloser, error)
	if body != nil {
		open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	res, err := t.send(ctx, req, open, int64(len(body)), nil)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close() // it says nothing
	if res.StatusCode/100 != 2 {
		return nil, &mcpcall.LoggableError{Reason: fmt.Sprintf("the server refused a message: HTTP %d", res.StatusCode)}
	}
	return respond(req, http.StatusAccepted, nil), nil
}

// gate is the body of a request. Its first byte leaves if the exchange still
// wants it; without a body no server can begin anything.
type gate struct {
	x    *mcpcall.Exchange
	r    *bytes.Reader
	left bool
}

func (g *gate) Read(p []byte) (int, error) {
	if g.x != nil && !g.left {
		if err := g.x.Leave(); err != nil {
			return 0, err
		}
		g.left = true
	}
	return g.r.Read(p)
}

func (g *gate) Close() error { return nil }

// within is ctx, which also ends with life.
func within(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(life, cancel)
	return ctx, func() { stop(); cancel() }
}

// respond makes a response for the SDK.
func respond(req *http.Request, status int, body []byte) *http.Response {
	res := &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
	if body != nil {
		res.Header.Set("Content-Type", "application/json")
	}
	return res
}
