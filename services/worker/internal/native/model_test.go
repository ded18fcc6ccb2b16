package native

import (
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// A model that fails ends the run by the code that fits, with nothing of the
// provider's text, and nothing is committed.
func TestModelFails(t *testing.T) {
	proxyError := func(code fault.Code) string {
		return `{"error":{"code":"` + string(code) + `","category":"x","message":"secret text","retryable":false,"incident_id":"inc_1","type":"x"}}`
	}
	for name, c := range map[string]struct {
		answer answers
		code   fault.Code
	}{
		"cut off in the text":       {stream(content("Hel")), fault.ModelFailed},
		"cut off before anything":   {stream(), fault.ModelFailed},
		"cut off, but said done":    {stream(content("Hel"), done), fault.ModelFailed},
		"reset in the text":         {breaks(content("Hel")), fault.ModelFailed},
		"reset after the reason":    {breaks(content("Hello"), finish("stop")), fault.ModelFailed},
		"reset at once":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fault.ModelUnavailable},
		"cut off in a call":         {stream(toolDelta(0, "a", "fs_list", `{"a`)), fault.ModelFailed},
		"an error in the stream":    {stream(content("Hel"), `{"error":{"message":"secret text"}}`), fault.ModelFailed},
		"no JSON":                   {stream(`{"choices":`), fault.ModelFailed},
		"a list":                    {stream(`[]`), fault.ModelFailed},
		"throttled":                 {status(429, `{"error":{"message":"secret text"}}`, "Retry-After", "7"), fault.RateLimited},
		"overloaded":                {status(503, `secret text`), fault.ModelUnavailable},
		"a bad request":             {status(400, `{"error":{"message":"secret text"}}`), fault.ModelFailed},
		"the proxy: throttled":      {status(429, proxyError(fault.RateLimited), "Retry-After", "7"), fault.RateLimited},
		"the proxy: stale":          {status(409, proxyError(fault.StaleLease)), fault.StaleLease},
		"the proxy: token expired":  {status(401, proxyError(fault.CapabilityExpired)), fault.CapabilityExpired},
		"the proxy: being stopped":  {status(499, proxyError(fault.Cancelled)), fault.ModelUnavailable},
		"the proxy: unknown code":   {status(500, proxyError("made_up")), fault.ModelUnavailable},
		"the proxy: model failed":   {status(502, proxyError(fault.ModelFailed)), fault.ModelFailed},
		"a redirect":                {status(302, ``, "Location", "http://127.0.0.1:1/"), fault.ModelUnavailable},
		"an answer of another kind": {status(200, `{"choices":[{"message":{"content":"whole"}}]}`), fault.ModelFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.model.play(c.answer)
			got := s.run(t, "run-1", "hi")
			e := got.wantError(t, c.code)
			if c.code == fault.RateLimited && (e.RetryAfterSeconds == nil || *e.RetryAfterSeconds != 7) {
				t.Errorf("retry after %v", e.RetryAfterSeconds)
			}
			if len(s.model.asked()) != 1 || s.thread.head.Revision != 0 || len(s.tools.called()) != 0 {
				t.Errorf("asked %d times, revision %d, %d tool calls", len(s.model.asked()), s.thread.head.Revision, len(s.tools.called()))
			}
			for _, e := range got {
				raw, err := e.MarshalJSON()
				must(t, err)
				if strings.Contains(string(raw), "secret") {
					t.Errorf("the provider's text stands in %s", raw)
				}
			}
			s.model.play(answer1("better"))
			s.run(t, "run-2", "again").wantFinished(t, "stop")
		})
	}
}

func TestModelIsAway(t *testing.T) {
	s := newStand(t)
	s.model.server.Close()
	e := s.run(t, "run-1", "hi").wantError(t, fault.ModelUnavailable)
	if !e.Retryable {
		t.Errorf("%+v", e)
	}
}

// A fault of the transport, such as a missing capability, keeps its code.
func TestModelTransportRefuses(t *testing.T) {
	s := newStand(t)
	s.model.client.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, fault.New(fault.CapabilityMissing, "test")
	})
	s.run(t, "run-1", "hi").wantError(t, fault.CapabilityMissing)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A cancel closes the model's stream, and the run ends as cancelled and as nothing
// else.
func TestCancelInAnAnswer(t *testing.T) {
	s := newStand(t)
	said, closed := make(chan struct{}), make(chan struct{})
	s.model.play(func(w http.ResponseWriter, r *http.Request) {
		write(w, content("Hel"))
		close(said)
		<-r.Context().Done()
		close(closed)
	})
	r := s.start(t, "run-1", "hi")
	<-said
	r.cancel()
	got := r.read()
	<-closed
	if end, ok := got.end().(event.RunCancelled); !ok || end.Reason != event.CancelledByClient || s.thread.head.Revision != 0 {
		t.Errorf("the run ended by %#v, revision %d", got.end(), s.thread.head.Revision)
	}
}

// Text comes in pieces that an event can have, and no rune is cut.
func TestPieces(t *testing.T) {
	s := newStand(t)
	long := strings.Repeat("ä€😀", event.MaxDeltaBytes/9+1000) + strings.Repeat(`"`, event.MaxDeltaBytes+1)
	s.model.play(stream(reasoning(long), content(long), finish("stop"), done))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "stop")
	if got.text() != long {
		t.Error("the text is another one")
	}
	for _, d := range of[event.TextDelta](got) {
		if len(d.Delta) > event.MaxDeltaBytes {
			t.Errorf("a delta of %d bytes", len(d.Delta))
		}
	}
	if n := len(of[event.ReasoningDelta](got)); n < 2 {
		t.Errorf("%d deltas of reasoning", n)
	}
}

// What is no text becomes U+FFFD, in the event and in the state.
func TestTextThatIsNone(t *testing.T) {
	s := newStand(t)
	s.model.play(
		stream(`{"choices":[{"index":0,"delta":{"content":"a`+"\xff"+`b\u0000c\ud83d"}}]}`, `{"choices":[{"index":0,"delta":{"content":"\ude00d\u001b[0m"}}]}`, finish("stop"), done),
		answer1("ok"))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "stop")
	for _, r := range got.text() {
		if r < ' ' {
			t.Errorf("a control character in %q", got.text())
		}
	}
	if !strings.Contains(got.text(), "a\ufffdb\ufffdc\ufffd") {
		t.Errorf("text: %q", got.text())
	}
	s.run(t, "run-2", "again").wantFinished(t, "stop")
}

// Reasoning that goes on after text is another piece; nothing is open at the end.
func TestReasoningBetweenTexts(t *testing.T) {
	s := newStand(t)
	s.model.play(stream(content("a"), reasoning("x"), content("b"), reasoning("y"), finish("stop"), done))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "stop")
	want := "run.started text.started text.delta reasoning.started reasoning.delta reasoning.finished text.delta " +
		"reasoning.started reasoning.delta reasoning.finished text.finished run.finished"
	if got.types() != want {
		t.Errorf("events: %s", got.types())
	}
}

// A refusal is what the model answers.
func TestRefusal(t *testing.T) {
	s := newStand(t)
	s.model.play(stream(delta(`"refusal":"I will not."`), finish("stop"), done))
	if got := s.run(t, "run-1", "hi"); got.text() != "I will not." {
		t.Errorf("text: %q", got.text())
	}
}

// Other choices than the first were not asked for, and a reason that is no id
// cannot stand in an event.
func TestOddAnswers(t *testing.T) {
	s := newStand(t)
	s.model.play(stream(`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`, finish("end of turn <1>"), done))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "unknown")
	if got.text() != "a" {
		t.Errorf("text: %q", got.text())
	}
}

// What is unknown is null, and what is told for each chunk is not added up.
func TestUsage(t *testing.T) {
	n := func(u *uint64) int64 {
		if u == nil {
			return -1
		}
		return int64(*u) //nolint:gosec // small
	}
	for name, c := range map[string]struct {
		chunks              []string
		input, output, hits int64 // -1 is unknown
		none                bool
	}{
		"told at the end":      {chunks: []string{tokens(10, 2)}, input: 10, output: 2, hits: -1},
		"told in each chunk":   {chunks: []string{tokens(10, 1), tokens(10, 2), tokens(10, 3)}, input: 10, output: 3, hits: -1},
		"with a cache":         {chunks: []string{`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}`}, input: 9, output: 1, hits: 4},
		"in part":              {chunks: []string{`{"choices":[],"usage":{"completion_tokens":1}}`}, input: -1, output: 1, hits: -1},
		"null":                 {chunks: []string{`{"choices":[],"usage":null}`}, none: true},
		"negative":             {chunks: []string{`{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":1}}`}, input: -1, output: 1, hits: -1},
		"more than is exact":   {chunks: []string{`{"choices":[],"usage":{"prompt_tokens":9007199254740993,"completion_tokens":1}}`}, input: -1, output: 1, hits: -1},
		"never told":           {none: true},
		"told and then denied": {chunks: []string{tokens(10, 1), `{"choices":[],"usage":null}`}, input: 10, output: 1, hits: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.model.play(stream(append(append([]string{content("a"), finish("stop")}, c.chunks...), done)...))
			got := s.run(t, "run-1", "hi")
			got.wantFinished(t, "stop")
			usages := of[event.UsageUpdated](got)
			if c.none {
				if len(usages) != 0 {
					t.Errorf("usage: %+v", usages)
				}
				return
			}
			u := usages[len(usages)-1]
			if n(u.InputTokens) != c.input || n(u.OutputTokens) != c.output || n(u.CachedInputTokens) != c.hits || !u.Final {
				t.Errorf("input %d, output %d, cached %d", n(u.InputTokens), n(u.OutputTokens), n(u.CachedInputTokens))
			}
		})
	}
}
