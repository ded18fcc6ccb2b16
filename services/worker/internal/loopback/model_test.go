package loopback_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/loopback"
)

func TestWhatGoesOn(t *testing.T) {
	s := newStand(t)
	s.begin(t)
	for path, want := range map[string]string{ //nolint:gosec // no credentials, but what must not go on
		chat:                                   chat,
		"/v1/responses?x=1":                    "/v1/responses",
		"/v1/messages?beta=true&key=" + "k":    "/v1/messages?beta=true",
		"/v1/messages?beta=no":                 "/v1/messages",
		"/v1/messages/count_tokens?beta=true":  "/v1/messages/count_tokens?beta=true",
		"/v1beta/models/m-1.5:generateContent": "/v1beta/models/m-1.5:generateContent",
		"/v1beta/models/m:streamGenerateContent?alt=sse&key=" + s.at.ModelKey: "/v1beta/models/m:streamGenerateContent?alt=sse",
	} {
		a := s.post(t, path, `{"a":1}`, "Content-Type", "application/json", "X-Api-Key", s.at.ModelKey, "X-Goog-Api-Key", "x", "Cookie", "c=1", "Anthropic-Beta", "b", "Accept", "text/event-stream", "Traceparent", "00-1")
		if a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		r, body := s.proxy.last()
		if r.URL.RequestURI() != want || body != `{"a":1}` {
			t.Errorf("%s went on as %s with %s", path, r.URL.RequestURI(), body)
		}
		for name := range r.Header {
			switch name {
			case "Accept", "Content-Type", "Content-Length", "User-Agent", "Accept-Encoding", "Anthropic-Beta":
			default:
				t.Errorf("%s went further", name)
			}
		}
	}
	a := s.do(t, http.MethodGet, s.at.ModelBaseURL+"/v1/models", "")
	if r, _ := s.proxy.last(); a.status != 200 || r.Method != http.MethodGet || r.URL.Path != "/v1/models" {
		t.Errorf("models: %d", a.status)
	}
	if a := s.do(t, http.MethodGet, s.at.ModelBaseURL+chat, ""); a.status != 404 {
		t.Errorf("GET of an answer: %d", a.status)
	}
}

func TestBodies(t *testing.T) {
	s := newStand(t)
	s.begin(t)
	var zipped, bomb bytes.Buffer
	for out, text := range map[*bytes.Buffer]string{&zipped: `{"a":1}`, &bomb: strings.Repeat(" ", loopback.MaxModelRequest+1)} {
		w := gzip.NewWriter(out)
		_, err := io.WriteString(w, text)
		must(t, errors.Join(err, w.Close()))
	}
	z, err := zstd.NewWriter(nil)
	must(t, err)
	zst := z.EncodeAll([]byte(`{"a":1}`), nil)
	must(t, z.Close())
	for name, tc := range map[string]struct {
		body, encoding string
		want           int
	}{
		"gzip":        {zipped.String(), "gzip", 200},
		"zstd":        {string(zst), "zstd", 200},
		"a bomb":      {bomb.String(), "gzip", 413},
		"too large":   {strings.Repeat(" ", loopback.MaxModelRequest+1), "", 413},
		"another":     {"x", "br", 415},
		"not gzip":    {"x", "gzip", 400},
		"not zstd":    {"x", "zstd", 400},
		"half a gzip": {zipped.String()[:12], "gzip", 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.post(t, chat, tc.body, "Content-Encoding", tc.encoding)
			if a.err == nil && a.status != tc.want {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			if tc.want == 200 {
				if _, body := s.proxy.last(); body != `{"a":1}` {
					t.Errorf("went on as %q", body)
				}
			}
		})
	}
}

type wire struct {
	path             string
	whole, cut       []string
	failing          string
	input, out, read uint64
}

func wires() map[string]wire {
	return map[string]wire{
		"chat": {
			path: chat, cut: []string{`{"choices":[{"delta":{"content":"a"}}]}`},
			whole:   []string{`{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}}`, "[DONE]"},
			failing: `{"error":{"message":"x"}}`, input: 7, out: 5, read: 3,
		},
		"responses": {
			path: "/v1/responses", cut: []string{`{"type":"response.created","response":{"status":"in_progress","error":null}}`},
			whole:   []string{`{"type":"response.created"}`, `{"type":"response.completed","response":{"status":"completed","error":null,"usage":{"input_tokens":7,"output_tokens":5,"input_tokens_details":{"cached_tokens":3}}}}`},
			failing: `{"type":"response.failed","response":{"status":"failed"}}`, input: 7, out: 5, read: 3,
		},
		"anthropic": {
			path: "/v1/messages", cut: []string{`{"type":"message_start","message":{"usage":{"input_tokens":4,"cache_read_input_tokens":3,"output_tokens":1}}}`},
			whole:   []string{`{"type":"message_start","message":{"usage":{"input_tokens":4,"cache_read_input_tokens":3,"output_tokens":1}}}`, `{"type":"message_delta","usage":{"output_tokens":5}}`, `{"type":"message_stop"}`},
			failing: `{"type":"error","error":{"type":"overloaded_error"}}`, input: 7, out: 5, read: 3,
		},
		"gemini": {
			path: "/v1beta/models/m:streamGenerateContent?alt=sse", cut: []string{`{"candidates":[{"content":{}}]}`},
			whole:   []string{`{"candidates":[{"content":{}}]}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":4,"thoughtsTokenCount":1,"cachedContentTokenCount":3}}`},
			failing: `{"error":{"code":503}}`, input: 7, out: 5, read: 3,
		},
	}
}

func TestOutcomes(t *testing.T) {
	for name, w := range wires() {
		for how, tc := range map[string]struct {
			answer http.HandlerFunc
			want   loopback.Outcome
			reset  bool
		}{
			"whole":       {stream(false, w.whole...), loopback.Outcome{Result: loopback.Finished, Status: 200}, false},
			"reset":       {stream(true, w.cut...), loopback.Outcome{Result: loopback.Cut, Status: 200}, true},
			"cut cleanly": {stream(false, w.cut...), loopback.Outcome{Result: loopback.Cut, Status: 200}, true},
			"an error":    {stream(false, w.failing), loopback.Outcome{Result: loopback.Failed, Status: 200, Code: fault.ModelFailed}, true},
			"refused":     {status(400, `{"error":{"code":400}}`), loopback.Outcome{Result: loopback.Failed, Status: 400, Code: fault.ModelFailed}, false},
			"throttled":   {status(429, "", "Retry-After", "7"), loopback.Outcome{Result: loopback.Failed, Status: 429, Code: fault.RateLimited, RetryAfter: 7 * time.Second}, false},
			"down":        {status(502, "x"), loopback.Outcome{Result: loopback.Failed, Status: 502, Code: fault.ModelUnavailable}, false},
			"a code":      {status(504, `{"error":{"code":"deadline_exceeded"}}`), loopback.Outcome{Result: loopback.Failed, Status: 504, Code: fault.DeadlineExceeded}, false},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				s := newStand(t)
				run, _ := s.begin(t)
				s.proxy.says(tc.answer)
				a := s.post(t, w.path, `{"tools":[{}]}`)
				if (a.err != nil) != tc.reset {
					t.Errorf("the program got %d, %v", a.status, a.err)
				}
				run.Close() // the call is over
				if got := run.Outcome(); got != tc.want {
					t.Errorf("outcome %+v", got)
				}
				u := run.Usage()
				if how == "whole" && (u.Input == nil || *u.Input != w.input || u.Output == nil || *u.Output != w.out || u.Cached == nil || *u.Cached != w.read) {
					t.Errorf("usage %v %v %v", u.Input, u.Output, u.Cached)
				}
				if how == "refused" && u.Known() {
					t.Error("usage was made up")
				}
			})
		}
	}
}

func TestAnAnswerThatIsNotStreamed(t *testing.T) {
	s := newStand(t)
	run, _ := s.begin(t)
	s.proxy.says(whole(`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":-2,"prompt_tokens_details":{"cached_tokens":1e3}}}`))
	if a := s.post(t, chat, `{}`); a.status != 200 || !strings.Contains(a.body, "stop") {
		t.Errorf("%+v", a)
	}
	run.Close()
	if u := run.Usage(); run.Outcome().Result != loopback.Finished || *u.Input != 1 || u.Output != nil || u.Cached != nil {
		t.Errorf("outcome %+v, usage %+v", run.Outcome(), u)
	}
}

// Main calls decide: those with about as many tools as any.
func TestTheDecidingCall(t *testing.T) {
	ok, bad := `{"choices":[{"finish_reason":"stop"}]}`, ""
	tools := func(n int) string { return `{"tools":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}` }
	for name, tc := range map[string]struct {
		calls []int // tools offered; negative fails
		want  loopback.Result
	}{
		"none":                          {nil, loopback.NotAsked},
		"one":                           {[]int{5}, loopback.Finished},
		"a title fails":                 {[]int{5, -1000}, loopback.Finished},
		"a suggestion with few tools":   {[]int{-20, 6}, loopback.Failed},
		"a retry":                       {[]int{-20, 20}, loopback.Finished},
		"the last of many":              {[]int{20, 20, -18}, loopback.Failed},
		"without tools the last of all": {[]int{-1000, 0}, loopback.Finished},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			run, _ := s.begin(t)
			for _, n := range tc.calls {
				s.proxy.says(whole(ok))
				if n < 0 {
					s.proxy.says(status(400, bad))
				}
				if n == -1000 {
					n = 0
				}
				s.post(t, chat, tools(max(n, -n)))
			}
			if got := run.Outcome().Result; got != tc.want {
				t.Errorf("outcome %q", got)
			}
			if run.ModelCalls() != len(tc.calls) {
				t.Errorf("%d calls", run.ModelCalls())
			}
		})
	}
}

func TestTheLimitOfModelCalls(t *testing.T) {
	s := newStand(t)
	told := 0
	run, _ := s.begin(t, func(c *loopback.RunConfig) {
		c.Limits.ModelCalls = 2
		c.ModelCallEnded = func(context.Context) { told++ }
	})
	for range 2 {
		s.post(t, chat, "{}")
	}
	s.post(t, "/v1/messages/count_tokens", "{}") // is no answer of a model
	for range 5 {
		if a := s.post(t, chat, "{}"); a.status != 400 || !strings.Contains(a.body, `"capacity"`) {
			t.Errorf("beyond the limit: %d %s", a.status, a.body)
		}
	}
	run.Close()
	if run.Outcome().Result != loopback.Exhausted || run.ModelCalls() != 2 || s.proxy.count() != 3 || told != 2 {
		t.Errorf("outcome %+v, %d calls, %d went on, told %d times", run.Outcome(), run.ModelCalls(), s.proxy.count(), told)
	}
}

// What is final must not look like something that passes: programs would try again
// for minutes.
func TestWhatIsFinalIsToldAsSuch(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   int
	}{
		"failed for good":   {status(502, `{"error":{"code":"model_failed"}}`), 400},
		"no lease any more": {status(409, `{"error":{"code":"stale_lease"}}`), 400},
		"not allowed":       {status(403, `{"error":{"code":"capability_scope"}}`), 403},
		"down":              {status(503, `{"error":{"code":"model_unavailable"}}`), 503},
		"down, unsaid":      {status(502, "x"), 502},
		"throttled":         {status(429, ""), 429},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.begin(t)
			s.proxy.says(tc.answer)
			if a := s.post(t, chat, "{}"); a.status != tc.want {
				t.Errorf("the program got %d, want %d", a.status, tc.want)
			}
		})
	}
	s := newStand(t)
	run, _ := s.begin(t)
	s.proxy.says(status(502, `{"error":{"code":502,"status":"INTERNAL"}}`, "Cofferdam-Fault", "model_failed"))
	a := s.post(t, "/v1beta/models/m:streamGenerateContent?alt=sse", "{}")
	if a.status != 400 || !strings.Contains(a.body, `"code":400`) || strings.Contains(a.body, "502") {
		t.Errorf("gemini got %d %s", a.status, a.body)
	}
	run.Close()
	if o := run.Outcome(); o.Code != fault.ModelFailed || o.Status != 502 {
		t.Errorf("outcome %+v", o)
	}
}

// A program may try again, but not without end: after some failures in a row that do
// not pass by themselves, whoever drives the run is told.
func TestAModelThatFailsAgainAndAgain(t *testing.T) {
	cut := stream(true, `{"choices":[{"delta":{"content":"a"}}]}`)
	fine := whole(`{"choices":[{"finish_reason":"stop"}]}`)
	down, final := status(503, `{"error":{"code":"model_unavailable"}}`), status(502, `{"error":{"code":"model_failed"}}`)
	for name, tc := range map[string]struct {
		answers []http.HandlerFunc
		fatal   bool
	}{
		"cut":                   {[]http.HandlerFunc{cut, cut, cut}, true},
		"cut and failed":        {[]http.HandlerFunc{fine, cut, final, cut}, true},
		"cut, but well at last": {[]http.HandlerFunc{cut, cut, fine, cut, cut}, false},
		"down":                  {[]http.HandlerFunc{down, down, down, down, down}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			run, _ := s.begin(t)
			for _, answer := range tc.answers {
				s.proxy.says(answer)
				s.post(t, chat, `{"tools":[{}]}`)
			}
			s.proxy.says(fine)
			s.post(t, chat, "{}") // a side call changes nothing
			run.Close()
			select {
			case <-run.Fatal():
				if !tc.fatal || !fault.Is(run.Err(), fault.ModelFailed) {
					t.Errorf("ended by %v", run.Err())
				}
			default:
				if tc.fatal {
					t.Error("nobody was told")
				}
			}
		})
	}
}

// A program that used up its calls by repeating one that failed has failed.
func TestTheLimitOfModelCallsHidesNoFailure(t *testing.T) {
	s := newStand(t)
	run, _ := s.begin(t, func(c *loopback.RunConfig) { c.Limits.ModelCalls = 2 })
	s.proxy.says(status(503, `{"error":{"code":"model_unavailable"}}`))
	for range 4 {
		s.post(t, chat, "{}")
	}
	run.Close()
	if got := run.Outcome(); got.Result != loopback.Failed || got.Code != fault.ModelUnavailable {
		t.Errorf("outcome %+v", got)
	}
}

// A stream reaches the program as it comes, and ends with the run.
func TestStreamsAreNotHeldBack(t *testing.T) {
	s := newStand(t)
	run, _ := s.begin(t)
	closed := make(chan struct{})
	s.proxy.says(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "data: {\"choices\":[]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(closed)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.at.ModelBaseURLV1+"/chat/completions", strings.NewReader("{}"))
	must(t, err)
	req.Header.Set("X-Api-Key", s.at.ModelKey)
	res, err := s.client.Do(req)
	must(t, err)
	defer func() { _ = res.Body.Close() }()
	first := make([]byte, 5)
	_, err = io.ReadFull(res.Body, first)
	must(t, err)
	run.Close()
	<-closed
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the stream ended as if it were whole")
	}
}

// A program that reads nothing does not keep a run from ending.
func TestAProgramThatDoesNotRead(t *testing.T) {
	s := newStand(t)
	run, _ := s.begin(t)
	begun := make(chan struct{})
	s.proxy.says(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := fmt.Fprintf(w, ": %s\n\n", strings.Repeat("x", 64<<10)); err != nil {
				return
			}
			if i == 200 {
				close(begun)
			}
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.at.ModelBaseURL+chat, strings.NewReader("{}"))
	must(t, err)
	req.Header.Set("X-Api-Key", s.at.ModelKey)
	res, err := s.client.Do(req)
	must(t, err)
	defer func() { _ = res.Body.Close() }()
	select {
	case <-begun: // more than all buffers hold would block before this; either is fine
	case <-time.After(time.Second):
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run.Close()
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
}
