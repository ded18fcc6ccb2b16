package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/mcphttp"
)

var never time.Time

// both runs a test against either kind of server.
func both(t *testing.T, test func(t *testing.T, h *hostile.HTTP)) {
	t.Helper()
	t.Parallel()
	for _, stateless := range []bool{false, true} {
		t.Run(map[bool]string{false: "2025-06-18", true: "2026-07-28"}[stateless], func(t *testing.T) {
			t.Parallel()
			h := &hostile.HTTP{Stateless: stateless}
			h.SetTools(hostile.HTTPList())
			test(t, h)
		})
	}
}

func transport(t *testing.T, urls ...string) *egress.Transport {
	t.Helper()
	allow, err := egress.ParsePrefixes([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	p := egress.Policy{Allow: allow}
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(egress.Port(u), 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		p.Ports = append(p.Ports, uint16(n))
	}
	return egress.New(p, nil)
}

func dial(t *testing.T, u string, change ...func(*mcphttp.Config)) (*mcphttp.Server, error) {
	t.Helper()
	cfg := mcphttp.Config{URL: u, Transport: transport(t, u), ConnectTimeout: 20 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	s, err := mcphttp.Connect(t.Context(), cfg)
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

func connect(t *testing.T, h *hostile.HTTP, change ...func(*mcphttp.Config)) *mcphttp.Server {
	t.Helper()
	s, err := dial(t, h.Serve(t), change...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(t *testing.T, s *mcphttp.Server, tool string) (mcpcall.Answer, error) {
	t.Helper()
	return s.Call(within(t, time.Minute), tool, json.RawMessage(`{"a":12345678901234567890}`), never)
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAnswersComeAsTheyAre(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		s := connect(t, h)
		want := map[bool]string{false: "2025-06-18", true: "2026-07-28"}[h.Stateless]
		if s.Version() != want {
			t.Errorf("negotiated %s", s.Version())
		}
		for tool, want := range map[string]string{
			"echo":        `{"content":[{"type":"text","text":"{\"a\":12345678901234567890}"}]}`,
			"stream":      `"streamed"`,
			"surrogate":   `a\ud800b\udc00c`,
			"bytes":       "a\xffb\xed\xa0\x80c",
			"ask":         `"resultType":"input_required"`,
			"ask_twice":   `"asked"`,
			"fail":        `"isError":true`,
			"null_result": `null`,
		} {
			a, err := call(t, s, tool)
			if err != nil || a.Error != nil || !strings.Contains(string(a.Result), want) {
				t.Errorf("%s: %q %v %v, want %q in it", tool, a.Result, a.Error, err, want)
			}
		}
		for tool, code := range map[string]int64{"rpc_error": -32602, "forbidden": -32099} {
			if a, err := call(t, s, tool); err != nil || a.Error == nil || a.Error.Code != code {
				t.Errorf("%s: %+v, %v", tool, a, err)
			}
		}
		if n := h.Requests("POST tools/call"); n != 10 {
			t.Errorf("%d calls arrived for 10", n)
		}
	})
}

// Whatever happens to an answer, a call arrives once and nobody claims to know
// what it did (smg 2441, qwen-code 5381), and the connection serves the next.
func TestACallArrivesOnce(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		s := connect(t, h)
		for i, tool := range []string{
			"crash", "cut", "garbage", "giant", "giant_event", "flood", "redirect", "headers", "unavailable", "empty", "other_id",
		} {
			_, err := call(t, s, tool)
			if !errors.Is(err, mcpcall.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", tool, err)
			}
			if got := h.Effects(); len(got) != i+1 || got[i] != tool {
				t.Fatalf("%s: effects %v", tool, got)
			}
			if a, err := call(t, s, "echo"); err != nil || a.Error != nil {
				t.Fatalf("after %s: %v %v", tool, a, err)
			}
		}
		if n := h.Requests("GET "); n > 1 {
			t.Errorf("%d streams were opened: something was resumed", n)
		}
	})
}

// A redirect leads nowhere: not to another server, and not back to this one.
func TestACallFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(other.Close)
	for _, to := range []string{other.URL, "/mcp", ""} {
		h := &hostile.HTTP{Elsewhere: to}
		u := h.Serve(t)
		s, err := dial(t, u, func(c *mcphttp.Config) { c.Transport = transport(t, u, other.URL) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, s, "redirect"); !errors.Is(err, mcpcall.ErrNoAnswer) || len(h.Effects()) != 1 {
			t.Errorf("%s: %v, effects %v", to, err, h.Effects())
		}
	}
	if hits.Load() != 0 {
		t.Error("another server was asked")
	}
}

// A session that expired upstream is not kept half alive (agentgateway 3622).
func TestAnExpiredSession(t *testing.T) {
	t.Parallel()
	h := &hostile.HTTP{}
	h.SetTools(hostile.HTTPList())
	u := h.Serve(t)
	s, err := dial(t, u)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, s, "expire"); !errors.Is(err, mcpcall.ErrNoAnswer) {
		t.Errorf("the call in which it expired: %v", err)
	}
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Fatal("nobody is told that the session is over")
	}
	if _, err := call(t, s, "count"); !errors.Is(err, mcpcall.ErrNotSent) {
		t.Errorf("a call in a session that is over: %v", err)
	}
	again, err := dial(t, u)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, again, "count"); err != nil {
		t.Errorf("in a new session: %v", err)
	}
	if got := h.Effects(); !slices.Equal(got, []string{"expire", "count"}) {
		t.Errorf("effects: %v", got)
	}
}

func TestABlockedCallEndsWithItsContext(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		s := connect(t, h)
		for _, tool := range []string{"hang", "drip"} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := s.Call(ctx, tool, json.RawMessage(`{}`), never)
				done <- err
			}()
			wait(t, func() bool { return slices.Contains(h.Effects(), tool) })
			cancel()
			if err := <-done; !errors.Is(err, mcpcall.ErrNoAnswer) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", tool, err)
			}
		}
		wait(t, func() bool { return h.Requests("POST notifications/cancelled") == 2 })
		if _, err := call(t, s, "echo"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestNothingIsSentTooLateOrAfterTheEnd(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		refuse := atomic.Bool{}
		s := connect(t, h, func(c *mcphttp.Config) {
			c.Authorize = func(ctx context.Context, _ http.Header) error {
				if refuse.Load() {
					<-ctx.Done() // a token that does not come in time
					return errors.New("secret reason")
				}
				return nil
			}
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Call(t.Context(), "count", json.RawMessage(`{}`), time.Now().Add(-time.Nanosecond)); !errors.Is(err, mcpcall.ErrNotSent) {
			t.Errorf("window is over: %v", err)
		}
		if _, err := s.Call(ended, "count", json.RawMessage(`{}`), never); !errors.Is(err, mcpcall.ErrNotSent) {
			t.Errorf("context has ended: %v", err)
		}
		refuse.Store(true)
		_, err := s.Call(within(t, time.Minute), "count", json.RawMessage(`{}`), time.Now().Add(50*time.Millisecond))
		if !errors.Is(err, mcpcall.ErrNotSent) || strings.Contains(err.Error(), "secret") {
			t.Errorf("without a credential: %v", err)
		}
		refuse.Store(false)
		if _, err := s.Call(within(t, time.Minute), "count", json.RawMessage(`{}`), time.Now().Add(time.Minute)); err != nil {
			t.Errorf("a refused call broke the connection: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Call(t.Context(), "count", json.RawMessage(`{}`), never); !errors.Is(err, mcpcall.ErrNotSent) {
			t.Errorf("after Close: %v", err)
		}
		// That what was never sent is cancelled may be told as soon as there is a credential.
		got := slices.DeleteFunc(h.Effects(), func(line string) bool { return line == "cancelled" })
		if !slices.Equal(got, []string{"count"}) {
			t.Errorf("effects: %v", got)
		}
	})
}

// A server that cannot be reached was not asked: that is known for certain.
func TestAServerThatIsGoneWasNotAsked(t *testing.T) {
	t.Parallel()
	h := &hostile.HTTP{Stateless: true}
	srv := httptest.NewServer(h)
	s, err := dial(t, srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	hostile.End(srv)
	wait(t, func() bool {
		_, err := call(t, s, "count")
		return errors.Is(err, mcpcall.ErrNotSent)
	})
}

// Servers that never negotiate hold nobody up.
func TestAServerThatCannotBeSpokenTo(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		u := h.Serve(t)
		for _, mode := range []string{hostile.ModeHang, hostile.ModeDrip, hostile.ModeHeaders, hostile.ModeRefuse} {
			h.SetMode(mode)
			begin := time.Now()
			if _, err := dial(t, u, func(c *mcphttp.Config) { c.ConnectTimeout = 300 * time.Millisecond }); err == nil {
				t.Errorf("%s: connected", mode)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("%s: it took %v", mode, took)
			}
		}
		if _, err := dial(t, "http://127.0.0.1:1/mcp"); err == nil {
			t.Error("connected to nobody")
		}
	})
}

func TestListsOfTools(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		h.TTL = 120_000
		s := connect(t, h)
		for range 2 { // the second one is not out of a cache
			l, err := s.Tools(within(t, time.Minute))
			if err != nil || len(l.Tools) < 30 || l.TTL != 2*time.Minute {
				t.Errorf("%d tools, %v, %v", len(l.Tools), l.TTL, err)
			}
		}
		if n := h.Requests("POST tools/list"); n != 2 {
			t.Errorf("asked %d times", n)
		}
		h.SetTools("")
		h.SetMode(hostile.ModeEndless)
		if l, err := s.Tools(within(t, time.Minute)); err == nil {
			t.Errorf("%d tools of an endless list", len(l.Tools))
		}
		h.SetMode(hostile.ModeMalformed)
		if l, err := s.Tools(within(t, time.Minute)); err != nil || len(l.Tools) < 30 {
			t.Errorf("malformed tools spoil the others: %d, %v", len(l.Tools), err)
		}
	})
}

func TestAChangedListIsHeardOf(t *testing.T) {
	both(t, func(t *testing.T, h *hostile.HTTP) {
		s := connect(t, h)
		wait(t, func() bool { return h.Listening() == 1 })
		h.SetTools(hostile.HTTPList())
		select {
		case <-s.Changed():
		case <-time.After(time.Minute):
			t.Error("nobody is told")
		}
	})
}

// Arguments that a tool wants in headers are there, and a tool that wants them in
// a way that is forbidden does not exist (2026-07-28).
func TestArgumentsInHeaders(t *testing.T) {
	t.Parallel()
	h := &hostile.HTTP{Stateless: true, TTL: 60_000}
	h.SetTools(`{"tools":[
		{"name":"headers_of_call","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},
		{"name":"bad","inputSchema":{"type":"object","properties":{"region":{"type":"object","x-mcp-header":"Region"}}}},
		{"name":"echo","inputSchema":{"type":"object"}}]}`)
	s := connect(t, h)
	l, err := s.Tools(within(t, time.Minute))
	if err != nil || len(l.Tools) != 2 || strings.Contains(string(l.Tools[1]), "bad") {
		t.Errorf("%s %v", l.Tools, err)
	}
	a, err := s.Call(within(t, time.Minute), "headers_of_call", json.RawMessage(`{"region":"eu"}`), never)
	if err != nil || !strings.Contains(string(a.Result), "Mcp-Param-Region:[eu]") || !strings.Contains(string(a.Result), "Mcp-Name:[headers_of_call]") {
		t.Errorf("%s %v", a.Result, err)
	}
}

func wait(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it did not come to pass within a minute")
		}
	}
}
