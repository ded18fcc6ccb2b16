package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// breaking are upstreams whose stream is no answer, after what was said before.
func breaking() map[string]struct {
	upstream func(before ...string) http.HandlerFunc
	reason   string
} {
	return map[string]struct {
		upstream func(before ...string) http.HandlerFunc
		reason   string
	}{
		"connection breaks": {func(before ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				events(before...)(w, req)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}, "upstream_answer_cut"},
		"ends without terminal": {func(before ...string) http.HandlerFunc { return events(before...) }, "upstream_answer_cut"},
		"ends within an event": {func(before ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				events(before...)(w, req)
				_, _ = io.WriteString(w, "data: [DONE]\n")
			}
		}, "upstream_answer_cut"},
		"terminal without finish": {func(before ...string) http.HandlerFunc {
			return events(append(before, "[DONE]")...)
		}, "upstream_answer_without_finish"},
		"one of two choices unfinished": {func(before ...string) http.HandlerFunc {
			return events(append(before, `{"choices":[]}`, `{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`, "[DONE]")...)
		}, "upstream_answer_without_finish"},
		"error in the stream": {func(before ...string) http.HandlerFunc {
			return events(append(before, `{"error":{"message":"`+textCanary+`"}}`, sayStop, "[DONE]")...)
		}, "upstream_error_in_answer"},
		"event is not JSON": {func(before ...string) http.HandlerFunc {
			return events(append(before, textCanary, sayStop, "[DONE]")...)
		}, "upstream_answer_malformed"},
		"event is no object": {func(before ...string) http.HandlerFunc {
			return events(append(before, "null", sayStop, "[DONE]")...)
		}, "upstream_answer_malformed"},
		"choice out of range": {func(before ...string) http.HandlerFunc {
			return events(append(before, `{"choices":[{"index":128}]}`, sayStop, "[DONE]")...)
		}, "upstream_answer_malformed"},
		"event too large": {func(before ...string) http.HandlerFunc {
			return events(append(before, `{"x":"`+strings.Repeat("x", 32<<10)+`"}`, sayStop, "[DONE]")...)
		}, "upstream_answer_too_large"},
		"line without end": {func(before ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				events(before...)(w, req)
				for range 1 << 20 {
					if _, err := io.WriteString(w, "data"); err != nil {
						return
					}
				}
			}
		}, "upstream_answer_too_large"},
		"stream too large": {func(before ...string) http.HandlerFunc {
			many := before
			for range 100 {
				many = append(many, `{"x":"`+strings.Repeat("x", 4<<10)+`"}`)
			}
			return events(append(many, sayStop, "[DONE]")...)
		}, "upstream_answer_too_large"},
		"key is repeated": {func(before ...string) http.HandlerFunc {
			return events(append(before, `{"choices":[{"index":0,"delta":{"content":"`+keyCanary+`"}}]}`, sayStop, "[DONE]")...)
		}, "upstream_repeats_the_key"},
		"falls silent": {func(before ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				events(before...)(w, req)
				_ = http.NewResponseController(w).Flush()
				_, _ = io.Copy(io.Discard, req.Body)
				<-req.Context().Done()
			}
		}, "upstream_silent"},
	}
}

// breakingLimits lets only what falls silent end by its time, however busy the machine is.
func breakingLimits(name string) proxy.Limits {
	l := proxy.Limits{MaxFrame: 16 << 10, MaxStream: 128 << 10, IdleTimeout: time.Minute}
	if name == "falls silent" {
		l.IdleTimeout = 2 * time.Second
	}
	return l
}

// A cut answer must not look like a short one (on either version of HTTP).
func TestBrokenStreamIsResetAndNeverEnded(t *testing.T) {
	t.Parallel()
	for name, tt := range breaking() {
		for proto, http1 := range map[string]bool{"HTTP/1.1": true, "HTTP/2": false} {
			t.Run(name+" "+proto, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, tt.upstream(sayHello), options{limits: breakingLimits(name), http1: http1})
				got := r.post(t.Context(), t, ask)
				r.isReset(t, got)
				if !strings.HasPrefix(got.body, "data: "+sayHello+"\n\n") {
					t.Errorf("what came before the break is missing: %q", got.body)
				}
				r.logged(t, `"reason":"`+tt.reason+`"`)
				r.logged(t, `"reset":true`)
			})
		}
	}
}

// What fails before anything was said is told with a status.
func TestStreamThatBreaksBeforeItBeginsIsAnError(t *testing.T) {
	t.Parallel()
	for name, tt := range breaking() {
		switch name {
		case "one of two choices unfinished", "stream too large": // these begin
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := tt.upstream()
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				upstream(w, req)
			}, options{limits: breakingLimits(name)})
			r.fails(t, r.post(t.Context(), t, ask), http.StatusBadGateway, "model_failed")
			r.logged(t, `"reason":"`+tt.reason+`"`)
		})
	}
}

func TestUpstreamStatus(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status     int
		retryAfter string
		want       int
		code       string
		after      string
	}{
		"rate limit":           {429, "7", 429, "rate_limited", "7"},
		"rate limit, a date":   {429, "Mon, 02 Jan 2006 15:04:05 GMT", 429, "rate_limited", ""},
		"rate limit, far off":  {429, "99999999", 429, "rate_limited", "3600"},
		"rate limit, negative": {429, "-5", 429, "rate_limited", ""},
		"rate limit, text":     {429, textCanary, 429, "rate_limited", ""},
		"server error":         {500, "", 503, "model_unavailable", ""},
		"overloaded":           {529, "3", 503, "model_unavailable", "3"},
		"unavailable":          {503, "2", 503, "model_unavailable", "2"},
		"request timeout":      {408, "", 503, "model_unavailable", ""},
		"bad request":          {400, "9", 502, "model_failed", ""},
		"wrong key":            {401, "", 502, "model_failed", ""},
		"forbidden":            {403, "", 502, "model_failed", ""},
		"unknown model":        {404, "", 502, "model_failed", ""},
		"too large":            {413, "", 413, "request_too_large", ""},
		"created":              {201, "", 502, "model_failed", ""},
		"no content":           {204, "", 502, "model_failed", ""},
		"not modified":         {304, "", 502, "model_failed", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.Header().Set("Set-Cookie", textCanary)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, `{"error":{"message":"`+textCanary+` `+keyCanary+`"}}`)
			}, options{})
			for _, body := range []string{ask, askWhole} {
				got := r.post(t.Context(), t, body)
				r.fails(t, got, tt.want, tt.code)
				if after := got.header.Get("Retry-After"); after != tt.after {
					t.Errorf("Retry-After %q, want %q", after, tt.after)
				}
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, elsewhere.URL+"/"+textCanary, status)
		}, options{})
		r.fails(t, r.post(t.Context(), t, ask), http.StatusBadGateway, "model_failed")
		r.logged(t, `"reason":"upstream_redirects"`)
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestWholeAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"error with status 200": `{"error":{"message":"` + textCanary + `"}}`,
		"not JSON":              textCanary,
		"no object":             `["` + textCanary + `"]`,
		"no choices":            `{"choices":[]}`,
		"choice unfinished":     `{"choices":[{"index":0,"finish_reason":null}]}`,
		"key is repeated":       `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"` + keyCanary + `"}}]}`,
		"cut":                   whole[:len(whole)-1],
		"too large":             `{"choices":[{"finish_reason":"stop"}],"x":"` + strings.Repeat("x", 64<<10) + `"}`,
		"empty":                 "",
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			}, options{limits: proxy.Limits{MaxAnswer: 32 << 10}})
			r.fails(t, r.post(t.Context(), t, askWhole), http.StatusBadGateway, "model_failed")
		})
	}
}

func TestAnswerOfAnotherKind(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ media, encoding, ask, answer string }{
		"stream asked, JSON came": {"application/json", "", ask, whole},
		"JSON asked, stream came": {"text/event-stream", "", askWhole, "data: " + sayStop + "\n\ndata: [DONE]\n\n"},
		"a page":                  {"text/html", "", askWhole, whole},
		"no type":                 {"/", "", askWhole, whole},
		"compressed":              {"application/json", "gzip", askWhole, whole},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.media)
				if tt.encoding != "" {
					w.Header().Set("Content-Encoding", tt.encoding)
				}
				_, _ = io.WriteString(w, tt.answer)
			}, options{})
			r.fails(t, r.post(t.Context(), t, tt.ask), http.StatusBadGateway, "model_failed")
		})
	}
}

// net/http quotes what a peer sent in its errors; the log must not.
func TestMalformedAnswerIsNotQuoted(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"no HTTP":     textCanary + " " + keyCanary + "\r\n\r\n",
		"bad header":  "HTTP/1.1 200 OK\r\n" + textCanary + "\r\n\r\n",
		"bad length":  "HTTP/1.1 200 OK\r\nContent-Length: " + textCanary + "\r\n\r\n",
		"huge header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat(textCanary, 8<<10) + "\r\n\r\n",
		"bad chunk":   "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + textCanary + "\r\n",
		"closes":      "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, options{base: "http://" + rawServer(t, raw)})
			got := r.post(t.Context(), t, ask)
			if got.status != http.StatusServiceUnavailable && got.status != http.StatusBadGateway {
				t.Errorf("got %+v", got)
			}
			r.clean(t, got)
		})
	}
}

// rawServer answers every connection with the same bytes.
func rawServer(t *testing.T, answer string) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func TestUpstreamThatCannotBeReached(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	r := newRig(t, nil, options{base: srv.URL})
	r.fails(t, r.post(t.Context(), t, ask), http.StatusServiceUnavailable, "model_unavailable")
	r.logged(t, `"reason":"upstream_dial"`)
}

func TestUpstreamThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	r := newRig(t, silent, options{limits: proxy.Limits{HeaderTimeout: 100 * time.Millisecond}})
	r.fails(t, r.post(t.Context(), t, ask), http.StatusServiceUnavailable, "model_unavailable")
	r.logged(t, `"reason":"upstream_answers_too_late"`)
}

func TestCallHasADeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, silent, options{limits: proxy.Limits{MaxDuration: 100 * time.Millisecond}})
	r.fails(t, r.post(t.Context(), t, ask), http.StatusGatewayTimeout, "deadline_exceeded")
}

// silent never answers, and notices when it is given up.
func silent(_ http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	<-req.Context().Done()
}

// A call whose caller has gone must not go on costing money.
func TestCallerThatGoesAwayEndsTheCall(t *testing.T) {
	t.Parallel()
	for proto, http1 := range map[string]bool{"HTTP/1.1": true, "HTTP/2": false} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				events(sayHello)(w, req)
				<-req.Context().Done()
				close(ended)
			}, options{http1: http1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			res := r.open(ctx, t, ask)
			defer func() { _ = res.Body.Close() }()
			if _, err := io.ReadFull(res.Body, make([]byte, len("data: "+sayHello))); err != nil {
				t.Fatal(err)
			}
			cancel()
			<-ended
		})
	}
}

// A caller that stops reading must not hold an answer, its memory and its
// upstream.
func TestCallerThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	for proto, http1 := range map[string]bool{"HTTP/1.1": true, "HTTP/2": false} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			big := `{"choices":[],"x":"` + strings.Repeat("x", 512<<10) + `"}`
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				defer close(ended)
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				for req.Context().Err() == nil {
					if _, err := io.WriteString(w, "data: "+big+"\n\n"); err != nil {
						return
					}
				}
			}, options{http1: http1, limits: proxy.Limits{WriteTimeout: 200 * time.Millisecond, MaxStream: 1 << 40}})
			res := r.open(t.Context(), t, ask)
			defer func() { _ = res.Body.Close() }()
			<-ended
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Error("the stream ended as if it were whole")
			}
		})
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-leave
		events(sayHello, sayStop, "[DONE]")(w, req)
	}, options{limits: proxy.Limits{MaxCalls: 1}})
	first := make(chan reply)
	go func() { first <- r.post(t.Context(), t, ask) }()
	<-arrived
	got := r.post(t.Context(), t, ask)
	r.fails(t, got, http.StatusServiceUnavailable, "capacity")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	}
	close(leave)
	if got := <-first; got.status != http.StatusOK || got.err != nil {
		t.Errorf("the first call got %+v", got)
	}
	go func() { <-arrived }()
	if got := r.post(t.Context(), t, ask); got.status != http.StatusOK || got.err != nil {
		t.Errorf("a call after the others got %+v", got)
	}
}
