package proxy_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

func demo(t *testing.T, stream bool, script string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"model": "demo", "stream": stream, "messages": []any{map[string]any{"role": "user", "content": script}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The demo model is an upstream like any other: its failures take the same way.
func TestDemoModelBehindTheProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, options{base: "http://127.0.0.1:1", alias: "demo", limits: proxy.Limits{MaxStream: 256 << 10}})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		got := r.post(t.Context(), t, demo(t, true, ">>say hello there"))
		if got.err != nil || got.status != http.StatusOK || !strings.Contains(got.body, `" there"`) || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		got := r.post(t.Context(), t, demo(t, false, ">>say hello there"))
		if got.err != nil || got.status != http.StatusOK || !strings.Contains(got.body, `"content":"hello there"`) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("reset in a stream", func(t *testing.T) {
		t.Parallel()
		got := r.post(t.Context(), t, demo(t, true, ">>say part\n>>reset"))
		r.isReset(t, got)
		if !strings.Contains(got.body, "part") {
			t.Errorf("got %q", got.body)
		}
	})
	t.Run("reset of a whole answer", func(t *testing.T) {
		t.Parallel()
		r.fails(t, r.post(t.Context(), t, demo(t, false, ">>reset")), http.StatusBadGateway, "model_failed")
	})
	t.Run("too much", func(t *testing.T) {
		t.Parallel()
		r.isReset(t, r.post(t.Context(), t, demo(t, true, ">>repeat 100000 word")))
	})
	for script, want := range map[string]struct {
		status int
		code   string
	}{
		">>error 429": {429, "rate_limited"}, ">>error 500": {503, "model_unavailable"}, ">>error 400": {502, "model_failed"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r.fails(t, r.post(t.Context(), t, demo(t, true, script)), want.status, want.code)
		})
	}
}

// The demo model answers every wire behind the proxy, and what agents send
// unasked does not hurt. A stream that it truncates is reset.
func TestDemoModelOnEveryWire(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, options{base: "http://127.0.0.1:1", alias: "demo"})
	for name, g := range tongues() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			send := func(path, body, script string) reply {
				quoted, err := json.Marshal("x\n" + script)
				if err != nil {
					t.Fatal(err)
				}
				return r.postTo(t.Context(), t, path, strings.Replace(strings.Replace(body, `"hi"`, string(quoted), 1), "{", `{"search_for_me":true,`, 1))
			}
			if got := send(g.path, g.ask, ">>say hello"); got.err != nil || got.status != http.StatusOK || !strings.Contains(got.body, "hello") {
				t.Errorf("stream: %+v", got)
			}
			if got := send(g.pathWhole, g.askWhole, ">>say hello"); got.err != nil || got.status != http.StatusOK || !strings.Contains(got.body, "hello") {
				t.Errorf("whole: %+v", got)
			}
			for _, script := range []string{">>say part\n>>reset", ">>say part\n>>truncate"} {
				r.isReset(t, send(g.path, g.ask, script))
				g.told(t, r, send(g.pathWhole+"?", g.askWhole, script), http.StatusBadGateway, "model_failed")
			}
			g.told(t, r, send(g.path, g.ask, ">>error 429"), http.StatusTooManyRequests, "rate_limited")
			g.told(t, r, send(g.path, g.ask, ">>error 500"), http.StatusServiceUnavailable, "model_unavailable")
		})
	}
	if got := r.postTo(t.Context(), t, "/v1/messages/count_tokens", `{"model":"demo","messages":[{"role":"user","content":"one two"}]}`); got.body != `{"input_tokens":2}` {
		t.Errorf("count: %+v", got)
	}
}
