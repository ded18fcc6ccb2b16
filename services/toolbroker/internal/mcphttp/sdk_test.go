package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

type text struct {
	Text string `json:"text"`
}

// sdkServer is a server as the official SDK makes it.
func sdkServer(t *testing.T, o *mcp.StreamableHTTPOptions) (u string, s *mcp.Server, calls *atomic.Int32) {
	t.Helper()
	calls = &atomic.Int32{}
	s = mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Says it again."}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, text, error) {
		calls.Add(1)
		return nil, in, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fail", Description: "Fails."}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("no such thing")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait", Description: "Waits."}, func(ctx context.Context, _ *mcp.CallToolRequest, _ text) (*mcp.CallToolResult, any, error) {
		calls.Add(1)
		bounded, cancel := context.WithTimeout(ctx, time.Minute) // a test that fails may forget it
		defer cancel()
		<-bounded.Done()
		if ctx.Err() != nil {
			calls.Add(100)
		}
		return nil, nil, bounded.Err()
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, o))
	t.Cleanup(func() { hostile.End(srv) })
	return srv.URL, s, calls
}

// The real thing, with sessions and without, answering with JSON and with streams.
func TestServersOfTheSDK(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options mcp.StreamableHTTPOptions
		version string
	}{
		"sessions, streams":  {mcp.StreamableHTTPOptions{}, "2025-11-25"},
		"sessions, JSON":     {mcp.StreamableHTTPOptions{JSONResponse: true}, "2025-11-25"},
		"stateless, streams": {mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}, "2026-07-28"},
		"stateless, JSON":    {mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, PropagateRequestCancellation: true}, "2026-07-28"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, server, calls := sdkServer(t, &c.options)
			s, err := dial(t, u)
			if err != nil {
				t.Fatal(err)
			}
			if s.Version() != c.version {
				t.Errorf("negotiated %s", s.Version())
			}
			l, err := s.Tools(within(t, time.Minute))
			if err != nil || len(l.Tools) != 3 {
				t.Errorf("%s %v", l.Tools, err)
			}
			for range 3 {
				a, err := s.Call(within(t, time.Minute), "echo", json.RawMessage(`{"text":"heron"}`), time.Now().Add(time.Minute))
				if err != nil || a.Error != nil || !strings.Contains(string(a.Result), `heron`) {
					t.Errorf("%s %v %v", a.Result, a.Error, err)
				}
			}
			if a, err := s.Call(within(t, time.Minute), "fail", json.RawMessage(`{"text":""}`), never); err != nil || !strings.Contains(string(a.Result), `"isError":true`) {
				t.Errorf("%s %v %v", a.Result, a.Error, err)
			}
			if a, err := s.Call(within(t, time.Minute), "none", json.RawMessage(`{}`), never); err != nil || a.Error == nil {
				t.Errorf("%s %v %v", a.Result, a.Error, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			waits := make(chan error, 1)
			go func() { _, err := s.Call(ctx, "wait", json.RawMessage(`{"text":""}`), never); waits <- err }()
			wait(t, func() bool { return calls.Load() == 4 }) // it has arrived
			cancel()
			if err := <-waits; !errors.Is(err, mcpcall.ErrNoAnswer) {
				t.Error(err)
			}
			wait(t, func() bool { return calls.Load() == 104 }) // the server was told

			server.AddTool(&mcp.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, errors.New("never called")
			})
			select {
			case <-s.Changed():
			case <-time.After(time.Minute):
				t.Error("nobody is told of a new tool")
			}
			if l, err := s.Tools(within(t, time.Minute)); err != nil || len(l.Tools) != 4 {
				t.Errorf("%s %v", l.Tools, err)
			}
		})
	}
}
