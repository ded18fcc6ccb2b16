package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// cuts are streams on a wire that are no answer, after their first part.
func (g tongue) cuts() map[string]struct {
	upstream http.HandlerFunc
	reason   string
} {
	type cut = struct {
		upstream http.HandlerFunc
		reason   string
	}
	then := func(rest func(w http.ResponseWriter, req *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			events(g.part)(w, req)
			rest(w, req)
		}
	}
	all := map[string]cut{
		"truncated": {events(g.part), "upstream_answer_cut"},
		"reset":     {then(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "upstream_answer_cut"},
		"error": {
			events(g.part, `{"type":"error","error":{"message":"`+textCanary+`","type":"overloaded_error"}}`),
			"upstream_error_in_answer",
		},
		"not JSON":  {events(g.part, textCanary), "upstream_answer_malformed"},
		"no object": {events(g.part, "[]"), "upstream_answer_malformed"},
		"not UTF-8": {events(g.part, strings.Replace(g.part, "{", "{\"x\":\"\xff\xfe\",", 1)), "upstream_answer_malformed"},
		"the key":   {events(g.part, `{"type":"x","x":"`+keyCanary+`"}`), "upstream_repeats_the_key"},
		"too large": {events(g.part, `{"type":"x","x":"`+strings.Repeat("x", 32<<10)+`"}`), "upstream_answer_too_large"},
		"endless comments": {then(func(w http.ResponseWriter, req *http.Request) {
			for req.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(": x\n\n", 1000)); err != nil {
					return
				}
			}
		}), "upstream_answer_too_large"},
		"endless events": {then(func(w http.ResponseWriter, req *http.Request) {
			for req.Context().Err() == nil {
				if _, err := io.WriteString(w, `data: {"type":"ping"}`+"\n\n"); err != nil {
					return
				}
			}
		}), "upstream_answer_too_large"},
		"silence": {then(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }), "upstream_silent"},
		"slow drip": {then(func(w http.ResponseWriter, req *http.Request) {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for req.Context().Err() == nil {
				_, _ = io.WriteString(w, "d")
				_ = http.NewResponseController(w).Flush()
				<-tick.C
			}
		}), "proxy"}, // the deadline of the call
	}
	switch g.kind {
	case proxy.KindAnthropic:
		all["stop without reason"] = cut{events(g.part, `{"type":"message_stop"}`), "upstream_answer_without_finish"}
		all["begins twice"] = cut{events(g.part, g.part), "upstream_answer_malformed"}
		all["odd type"] = cut{events(g.part, `{"type":"x\nevent: message_stop"}`), "upstream_answer_malformed"}
	case proxy.KindGemini:
		all["one of two unfinished"] = cut{events(g.part, `{"candidates":[{"index":1,"finishReason":"STOP"}]}`), "upstream_answer_cut"}
		all["candidate out of range"] = cut{events(g.part, `{"candidates":[{"index":128}]}`), "upstream_answer_malformed"}
	case proxy.KindOpenAI, proxy.KindDemo:
		if g.named {
			all["terminal of another status"] = cut{events(g.part, `{"type":"response.completed","response":{"status":"failed"}}`), "upstream_answer_without_finish"}
			all["no type"] = cut{events(g.part, `{"x":1}`), "upstream_answer_malformed"}
		} else {
			all["done without finish"] = cut{events(g.part, "[DONE]"), "upstream_answer_without_finish"}
		}
	}
	return all
}

// On no wire does a cut answer look like a short one.
func TestEveryWireResetsWhatIsCut(t *testing.T) {
	t.Parallel()
	for name, g := range tongues() {
		for how, c := range g.cuts() {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				o := g.options()
				o.limits = proxy.Limits{MaxFrame: 16 << 10, MaxStream: 128 << 10, IdleTimeout: time.Minute, MaxDuration: time.Minute}
				switch how { // nothing else is cut by its time, however busy the machine is
				case "silence":
					o.limits.IdleTimeout = 2 * time.Second
				case "slow drip":
					o.limits.MaxDuration = 4 * time.Second
				}
				r := newRig(t, c.upstream, o)
				got := r.postTo(t.Context(), t, g.path, g.ask)
				r.isReset(t, got)
				if !strings.HasPrefix(got.body, g.event(g.part)) {
					t.Errorf("what came before the cut is missing: %q", got.body)
				}
				for _, end := range g.end[len(g.end)-1:] {
					if strings.Contains(got.body, end) {
						t.Errorf("with its terminal: %q", got.body)
					}
				}
				r.logged(t, `"reason":"`+c.reason+`"`)
				r.logged(t, `"reset":true`)
			})
		}
	}
}

// What an endpoint answers instead, and what the agent is told of it: with
// no_retry nothing that it would repeat for minutes.
func TestEveryWireTellsFailures(t *testing.T) {
	t.Parallel()
	for name, g := range tongues() {
		for _, noRetry := range []bool{false, true} {
			for upstream, want := range map[int]struct {
				status int
				code   string
				final  bool
			}{
				400: {502, "model_failed", true}, 401: {502, "model_failed", true}, 404: {502, "model_failed", true},
				413: {413, "request_too_large", false}, 429: {429, "rate_limited", false},
				500: {503, "model_unavailable", true}, 503: {503, "model_unavailable", true}, 529: {503, "model_unavailable", true},
			} {
				t.Run(fmt.Sprint(name, " ", upstream, " ", noRetry), func(t *testing.T) {
					t.Parallel()
					o := g.options()
					o.noRetry = noRetry
					r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Retry-After", "7")
						w.WriteHeader(upstream)
						_, _ = io.WriteString(w, `{"type":"error","error":{"message":"`+textCanary+`"}}`)
					}, o)
					status := want.status
					if noRetry && want.final {
						status = http.StatusBadRequest
					}
					for path, body := range map[string]string{g.path: g.ask, g.pathWhole + "?": g.askWhole} {
						got := r.postTo(t.Context(), t, path, body)
						g.told(t, r, got, status, want.code)
						if upstream == 429 && got.header.Get("Retry-After") != "7" {
							t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
						}
						if noRetry && want.final && got.header.Get("X-Should-Retry") != "false" {
							t.Errorf("X-Should-Retry %q", got.header.Get("X-Should-Retry"))
						}
					}
				})
			}
		}
	}
}

// Whatever an endpoint does before its answer begins is told with a status.
func TestEveryWireMeetsAHostileEndpoint(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(elsewhere.Close)
	big := strings.Repeat("x", 1<<20)
	hostile := map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"other type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, textCanary)
		},
		"no type": func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil },
		"compressed": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", req.Header.Get("Accept"))
			_, _ = io.WriteString(w, textCanary)
		},
		"100 MB": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", req.Header.Get("Accept"))
			_, _ = io.WriteString(w, `data: {"x":"`)
			for range 100 {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		},
		"empty": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", req.Header.Get("Accept"))
		},
	}
	for name, g := range tongues() {
		for how, upstream := range hostile {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, upstream, g.options())
				for path, body := range map[string]string{g.path: g.ask, g.pathWhole + "?": g.askWhole} {
					g.told(t, r, r.postTo(t.Context(), t, path, body), http.StatusBadGateway, "model_failed")
				}
			})
		}
	}
	t.Cleanup(func() {
		if n := hits.Load(); n != 0 {
			t.Errorf("%d redirects were followed", n)
		}
	})
}

// Whole answers that are none.
func TestEveryWireRefusesAWholeThatIsNone(t *testing.T) {
	t.Parallel()
	none := map[string][]string{
		"chat":      {`{"choices":[]}`, `{"choices":[{"index":0}]}`, `{"choices":[{"finish_reason":"stop"},{"finish_reason":null}]}`},
		"responses": {`{"status":"completed"}`, `{"status":"failed","error":{"message":"` + textCanary + `"},"output":[]}`, `{"status":"failed","output":[]}`, `{"status":"in_progress","output":[]}`, `{"status":"queued","output":[]}`},
		"messages":  {`{"type":"message","content":[]}`, `{"type":"error","error":{"message":"` + textCanary + `"}}`, `{"type":"error"}`, `{"type":"message","stop_reason":"end_turn"}`},
		"gemini":    {`{"candidates":[]}`, `{"candidates":[{"index":0}]}`, `[{"candidates":[{"finishReason":"STOP"}]}]`},
	}
	for name, g := range tongues() {
		for i, body := range append(none[name], `{}`, `null`, "{\"x\":\"\xff\"}", g.whole[1:], g.whole[:len(g.whole)-1], strings.Replace(g.whole, "{", `{"x":"`+keyCanary+`",`, 1)) {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, answerJSON(body), g.options())
				g.told(t, r, r.postTo(t.Context(), t, g.pathWhole, g.askWhole), http.StatusBadGateway, "model_failed")
			})
		}
	}
}

// Ends that are one: a prompt that is blocked, an answer that is cut short by
// its own bound, a failure that the wire has a terminal for.
func TestOtherEndsOfAnAnswer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ wire, end string }{
		"incomplete": {"responses", `{"type":"response.incomplete","response":{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}`},
		"blocked":    {"gemini", `{"promptFeedback":{"blockReason":"SAFETY"}}`},
		"length":     {"gemini", `{"candidates":[{"index":0,"finishReason":"MAX_TOKENS"}]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := tongues()[tt.wire]
			r := newRig(t, events(tt.end), g.options())
			if got := r.postTo(t.Context(), t, g.path, g.ask); got.status != http.StatusOK || got.err != nil || got.body != g.event(tt.end) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestFailedResponseIsToldWithoutTheProvidersWords(t *testing.T) {
	t.Parallel()
	g := tongues()["responses"]
	failed := func(code string) string {
		return `{"type":"response.failed","sequence_number":7,"response":{"id":"resp_1","status":"failed","instructions":"` + textCanary +
			`","error":{"code":"` + code + `","message":"` + textCanary + `"},"usage":{"input_tokens":3,"output_tokens":4}}}`
	}
	for code, want := range map[string]string{"context_length_exceeded": "context_length_exceeded", textCanary: "server_error"} {
		r := newRig(t, events(g.part, failed(code)), g.options())
		got := r.postTo(t.Context(), t, g.path, g.ask)
		if got.err != nil || got.trailer.Get("Cofferdam-Fault") != "model_failed" || !strings.Contains(got.body, `"code":"`+want+`"`) || !strings.Contains(got.body, "event: response.failed\n") {
			t.Errorf("got %+v", got)
		}
		r.clean(t, got)
		r.logged(t, `"reason":"upstream_error_in_answer","reset":false`)
		r.logged(t, `"input_tokens":3,"output_tokens":4`)

		first := newRig(t, events(failed(code)), g.options())
		g.told(t, first, first.postTo(t.Context(), t, g.path, g.ask), http.StatusBadGateway, "model_failed")
	}
}

// A stream of Gemini that is whole and stays open ends by itself.
func TestWholeStreamThatStaysOpenEnds(t *testing.T) {
	t.Parallel()
	g := tongues()["gemini"]
	o := g.options()
	o.limits = proxy.Limits{EndTimeout: 100 * time.Millisecond, IdleTimeout: time.Hour}
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		events(append([]string{g.part}, g.end...)...)(w, req)
		<-req.Context().Done()
	}, o)
	if got := r.postTo(t.Context(), t, g.path, g.ask); got.err != nil || got.body != g.stream() {
		t.Errorf("got %+v", got)
	}
}
