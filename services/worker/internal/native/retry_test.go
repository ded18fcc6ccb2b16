package native

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// scripted answers without a network, so that time can be a test's own.
type scripted struct {
	answers []canned
	// at is when it was asked.
	at []time.Time
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Now())
	if len(s.answers) == 0 {
		return nil, errors.New("the script is over")
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	h := http.Header{"Content-Type": {"text/event-stream"}}
	if next.retryAfter != "" {
		h.Set("Retry-After", next.retryAfter)
	}
	var body io.Reader = strings.NewReader(next.body)
	if next.breaks > 0 {
		body = io.MultiReader(body, breaking(next.breaks))
	}
	return &http.Response{StatusCode: next.status, Header: h, Body: io.NopCloser(body), Request: r}, nil
}

// breaking is a connection that breaks after a while.
type breaking time.Duration

func (b breaking) Read([]byte) (int, error) {
	<-time.After(time.Duration(b))
	return 0, io.ErrUnexpectedEOF
}

type canned struct {
	status           int
	body, retryAfter string
	// breaks says after what time the connection breaks; 0 is a clean end.
	breaks time.Duration
}

// bubble is a stand with neither network nor temporary files.
func bubble(t *testing.T, w wire, s http.RoundTripper, change ...func(*harness.Construction)) *stand {
	t.Helper()
	c := construction()
	c.Model.Wire, c.Options = w.name, nil
	for _, f := range change {
		f(&c)
	}
	out := &stand{
		model: &fakeModel{client: &http.Client{Transport: s}}, tools: &tools{done: map[string]harness.ToolResult{}}, thread: &thread{}, files: newFiles(), memory: newMemory(),
	}
	var err error
	out.runtime, err = New(Config{}).Initialize(t.Context(), c)
	must(t, err)
	return out
}

func (s *stand) timed(t *testing.T, deadline time.Duration) events {
	t.Helper()
	return s.alone(t, "run-1", deadline)
}

// alone runs a turn without a network.
func (s *stand) alone(t *testing.T, runID string, deadline time.Duration) events {
	t.Helper()
	r := newRun(t, runID, deadline)
	return r.begin(t, func(ctx context.Context) (harness.Result, error) {
		return s.runtime.Stream(ctx, s.turn(runID, "hi"), s.offline(r), r)
	}).read()
}

func (s *stand) offline(r *testRun) harness.Facades {
	return harness.Facades{
		Model: harness.Model{HTTP: s.model.client, BaseURL: "http://model.test/v1/", RootURL: "http://model.test/", Alias: "main"},
		Tools: s.tools, Thread: runThread{s.thread, r}, Files: s.files, Memory: s.memory,
	}
}

// A throttled call is made again after a while, longer each time, or after what
// the provider wants.
func TestRetry(t *testing.T) {
	for _, w := range wires() {
		for _, code := range []int{429, 503, 529} {
			synctest.Test(t, func(t *testing.T) {
				ok := canned{status: 200, body: string(w.stream(reply{text: "ok", stop: "stop"}))}
				script := &scripted{answers: []canned{
					{status: code, body: `{}`}, {status: code, body: `{}`, retryAfter: "20"}, {status: code, body: `{}`}, ok,
				}}
				got := bubble(t, w, script).timed(t, time.Hour)
				got.wantFinished(t, "stop")
				if n := len(of[event.Warning](got)); n != 3 || of[event.Warning](got)[0].Code != "model_retry" {
					t.Errorf("%s, %d: %d warnings", w.name, code, n)
				}
				for i, want := range []time.Duration{time.Second, 20 * time.Second, 4 * time.Second} {
					if took := script.at[i+1].Sub(script.at[i]); took < want || took > want+want/4+time.Millisecond {
						t.Errorf("%s, %d: wait %d took %v", w.name, code, i, took)
					}
				}
			})
		}
	}
}

// Retries end: by number, by the run's deadline, and by a cancel.
func TestRetryEnds(t *testing.T) {
	w := chatWire()
	busy := canned{status: 429, body: `{}`, retryAfter: "20"}
	script := func() *scripted {
		s := &scripted{}
		for range 20 {
			s.answers = append(s.answers, busy)
		}
		return s
	}
	t.Run("by number", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := script()
			e := bubble(t, w, s, options(`{"model_retries":2}`)).timed(t, time.Hour).wantError(t, fault.RateLimited)
			if len(s.at) != 3 || e.RetryAfterSeconds == nil || *e.RetryAfterSeconds != 20 {
				t.Errorf("asked %d times: %+v", len(s.at), e)
			}
		})
	})
	t.Run("by the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := script()
			began := time.Now()
			bubble(t, w, s).timed(t, 30*time.Second).wantError(t, fault.RateLimited)
			if len(s.at) != 2 || time.Since(began) > 26*time.Second {
				t.Errorf("asked %d times in %v", len(s.at), time.Since(began))
			}
		})
	})
	t.Run("by a cancel", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := script()
			b := bubble(t, w, s)
			r := newRun(t, "run-1", time.Hour)
			r.begin(t, func(ctx context.Context) (harness.Result, error) {
				return b.runtime.Stream(ctx, b.turn("run-1", "hi"), b.offline(r), r)
			})
			synctest.Wait()
			r.cancel()
			if got := r.read(); got.end().Type() != event.TypeRunCancelled || len(s.at) != 1 {
				t.Errorf("asked %d times: %s", len(s.at), got.types())
			}
		})
	})
}

// Nothing else is made again: what is wrong with the request, what the run may
// not do, and what people have seen a part of.
func TestNoRetry(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   fault.Code
	}{
		"a bad request":       {400, `{}`, fault.ModelFailed},
		"a broken provider":   {500, `{}`, fault.ModelUnavailable},
		"a bad gateway":       {502, `{}`, fault.ModelUnavailable},
		"an empty account":    {429, `{"error":{"code":"insufficient_quota"}}`, fault.RateLimited},
		"an expired token":    {503, `{"error":{"code":"capability_expired"}}`, fault.CapabilityExpired},
		"after a token":       {200, "data: " + content("Hel") + "\n\ndata: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n", fault.RateLimited},
		"after a call began":  {200, "data: " + toolDelta(0, "a", "fs_list", "") + "\n\ndata: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n", fault.RateLimited},
		"after some thinking": {200, "data: " + reasoning("hm") + "\n\ndata: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n", fault.RateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: []canned{{status: c.status, body: c.body}}}
				bubble(t, chatWire(), s).timed(t, time.Hour).wantError(t, c.code)
				if len(s.at) != 1 {
					t.Errorf("asked %d times", len(s.at))
				}
			})
		})
	}
}

// Throttled within a stream, before anything came, is throttled too.
func TestRetryOfAnEmptyStream(t *testing.T) {
	bodies := map[harness.Wire]string{
		harness.WireOpenAIChat:        "data: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n",
		harness.WireOpenAIResponses:   "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n",
		harness.WireAnthropicMessages: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
	}
	for _, w := range wires() {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{answers: []canned{
				{status: 200, body: bodies[w.name]}, {status: 200, body: string(w.stream(reply{text: "ok", stop: "stop"}))},
			}}
			got := bubble(t, w, s).timed(t, time.Hour)
			got.wantFinished(t, "stop")
			if got.text() != "ok" || len(s.at) != 2 {
				t.Errorf("%s: %q, asked %d times", w.name, got.text(), len(s.at))
			}
		})
	}
}

// Both forms of Retry-After are read, and neither is believed for ever.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"7": 7 * time.Second, "0": 0, "-1": 0, "": 0, "soon": 0, "99999999999": 0, "86400": time.Hour,
			time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat): 30 * time.Second,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):       0,
		} {
			if value == "99999999999" {
				want = time.Hour
			}
			err := model.Refused(429, http.Header{"Retry-After": {value}}, nil)
			var f *model.FailureError
			if !errors.As(err, &f) || f.Fault.RetryAfter() != want {
				t.Errorf("%q: %v", value, f.Fault.RetryAfter())
			}
		}
	})
}

// A stream that breaks is a failure of the model, and at the deadline it is the
// deadline's.
func TestStreamBreaks(t *testing.T) {
	begun := map[harness.Wire]string{
		harness.WireOpenAIChat:        "data: " + content("Hel") + "\n\n",
		harness.WireOpenAIResponses:   "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hel\"}\n\n",
		harness.WireAnthropicMessages: "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hel\"}}\n\n",
	}
	for _, w := range wires() {
		for breaks, want := range map[time.Duration]event.Type{
			9 * time.Second: event.TypeRunError, 11 * time.Second: event.TypeRunCancelled,
		} {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: []canned{{status: 200, body: begun[w.name], breaks: breaks}}}
				got := bubble(t, w, s).timed(t, 10*time.Second)
				if got.end().Type() != want || got.text() != "Hel" {
					t.Errorf("%s, after %v: %#v", w.name, breaks, got.end())
				}
			})
		}
	}
}
