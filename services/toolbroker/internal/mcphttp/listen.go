package mcphttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

const (
	// Between two attempts to listen.
	firstPause = time.Second
	maxPause   = time.Minute
	// listenTimeout bounds the wait for the head of a stream.
	listenTimeout = 10 * time.Second
	// maxHeard bounds one stream of notifications, in bytes; then it is opened anew.
	maxHeard = 16 << 20

	methodListen = "subscriptions/listen"
)

// listen hears of changed tools, and of what the server asks outside of the streams
// of calls, until close. That it cannot is no failure: lists
// are asked for again in any case.
func (t *tap) listen() {
	pause := firstPause
	for n := 1; ; n++ {
		again, heard := t.hear(n)
		if !again {
			return
		}
		if heard {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-t.done:
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, maxPause)
	}
}

// hear reads one stream to its end. again is false where the server has none to
// offer, or no session any more.
func (t *tap) hear(n int) (again, heard bool) {
	ctx, cancel := context.WithCancel(t.calls)
	defer cancel()
	head := time.AfterFunc(listenTimeout, cancel)
	defer head.Stop()
	req, open, length, err := t.listenRequest(ctx, n)
	if err != nil {
		return false, false
	}
	res, err := t.send(ctx, req, open, length, nil)
	if err != nil {
		select {
		case <-t.done:
			return false, false
		default:
			return t.calls.Err() == nil, false
		}
	}
	defer res.Body.Close()
	head.Stop()
	if res.StatusCode/100 == 4 {
		return false, false
	}
	if res.StatusCode != http.StatusOK {
		return true, false
	}
	events := newEvents(res.Body, maxHeard)
	for asked := 0; ; {
		data, err := events.next()
		if err != nil {
			return t.calls.Err() == nil, heard
		}
		heard = true
		msg, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			return true, heard
		}
		m, ok := msg.(*jsonrpc.Request)
		switch {
		case !ok:
		case !m.IsCall():
			mcpcall.Notified(m, t.changed)
		default:
			if asked++; asked > maxAsked {
				return true, heard
			}
			t.reply(ctx, t.asking(), m)
		}
	}
}

// listenRequest asks for the stream: by GET before the stateless revision, and
// with a request of its own from there on.
func (t *tap) listenRequest(ctx context.Context, n int) (*http.Request, func() (io.ReadCloser, error), int64, error) {
	version := *t.version.Load()
	if version < mcpcall.Stateless {
		req, err := t.request(ctx, http.MethodGet)
		if err != nil {
			return nil, nil, 0, err
		}
		req.Header.Set("Accept", "text/event-stream")
		return req, nil, 0, nil
	}
	req, err := t.request(ctx, http.MethodPost)
	if err != nil {
		return nil, nil, 0, err
	}
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": fmt.Sprintf("listen-%d", n), "method": methodListen,
		"params": map[string]any{
			"notifications": map[string]any{"toolsListChanged": true},
			"_meta": map[string]any{
				mcp.MetaKeyProtocolVersion:    version,
				mcp.MetaKeyClientInfo:         map[string]any{"name": mcpcall.ClientName, "version": mcpcall.ClientVersion},
				mcp.MetaKeyClientCapabilities: map[string]any{},
			},
		},
	})
	req.Header.Set("Mcp-Method", methodListen)
	return req, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }, int64(len(body)), err
}

// request is one of this package's own, in the session.
func (t *tap) request(ctx context.Context, method string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	if v := t.version.Load(); v != nil {
		req.Header.Set(headerVersion, *v)
	}
	if s := t.session.Load(); s != nil {
		req.Header.Set(headerSession, *s)
	}
	return req, nil
}

// reply answers a request of the server's, asked in the midst of x, if it can:
// whether that arrives is the server's concern.
func (t *tap) reply(ctx context.Context, x *mcpcall.Exchange, asked *jsonrpc.Request) {
	body, err := jsonrpc.EncodeMessage(mcpcall.Respond(x, asked))
	if err != nil {
		return
	}
	req, err := t.request(ctx, http.MethodPost)
	if err != nil {
		return
	}
	if res, err := t.message(req, body); err == nil {
		_ = res.Body.Close() // made here
	}
}
