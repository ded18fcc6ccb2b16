package native

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// fixture is an answer, and what becomes of it on whatever wire.
type fixture struct {
	name   string
	answer reply
	// events of the answer itself.
	events string
	// turns that the model is sent afterwards; sealed ones only on wires that seal.
	turns []string
	stop  string
}

func fixtures() []fixture {
	return []fixture{
		{
			name: "text", answer: reply{text: "Hello, wörld.", stop: "stop"}, stop: "stop",
			events: "text.started text.delta text.delta text.finished", turns: []string{"user hi", "assistant Hello, wörld."},
		},
		{
			name: "reasoning", answer: reply{reasoning: "let me think", text: "Hello.", stop: "stop"}, stop: "stop",
			events: "reasoning.started reasoning.delta reasoning.delta reasoning.finished text.started text.delta text.delta text.finished",
			turns:  []string{"user hi", "sealed sealed-thought", "assistant Hello."},
		},
		{
			name: "cut at its length", answer: reply{text: "Hel", stop: "length"}, stop: "length",
			events: "text.started text.delta text.delta text.finished", turns: []string{"user hi", "assistant Hel"},
		},
		{
			name: "usage", answer: reply{text: "ok", stop: "stop", input: 100, output: 7, cached: 40}, stop: "stop",
			events: "text.started text.delta text.delta text.finished usage.updated", turns: []string{"user hi", "assistant ok"},
		},
		{
			name: "one call", stop: "stop",
			answer: reply{text: "I look.", calls: []called{{"fs_list", `{"path":"a"}`}}, stop: "tool_calls"},
			events: "text.started text.delta text.delta text.finished tool.started tool.finished",
			turns:  []string{"user hi", "assistant I look.", `call fs_list {"path":"a"}`, "result done"},
		},
		{
			name: "calls after thinking", stop: "stop",
			answer: reply{reasoning: "both", calls: []called{{"fs_list", `{"n":1}`}, {"fs_read_file", `{}`}}, stop: "tool_calls"},
			events: "reasoning.started reasoning.delta reasoning.delta reasoning.finished tool.started tool.started tool.finished tool.finished",
			turns:  []string{"user hi", "sealed sealed-thought", `call fs_list {"n":1}`, `call fs_read_file {}`, "result done", "result done"},
		},
		{
			name: "no arguments", stop: "stop",
			answer: reply{calls: []called{{"fs_list", ""}}, stop: "tool_calls"},
			events: "tool.started tool.finished", turns: []string{"user hi", `call fs_list {}`, "result done"},
		},
	}
}

func TestFixtures(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		for _, f := range fixtures() {
			t.Run(f.name, func(t *testing.T) {
				s := newStand(t, on(w)...)
				s.tools.answer = together(len(f.answer.calls))
				s.model.play(w.says(f.answer))
				if len(f.answer.calls) > 0 {
					s.model.play(w.says(reply{stop: "stop"}))
				}
				got := s.run(t, "run-1", "hi")
				got.wantFinished(t, f.stop)
				if want := "run.started " + f.events + " run.finished"; got.types() != want {
					t.Errorf("events: %s\nwant    %s", got.types(), want)
				}
				if got.text() != f.answer.text {
					t.Errorf("text: %q", got.text())
				}
				first, err := w.read([]byte(s.model.asked()[0].raw))
				must(t, err)
				if first.model != "main" || first.system != "be brief" || first.maxTokens != 100 || strings.Join(first.tools, " ") != "fs_read_file fs_list" {
					t.Errorf("asked: %+v", first)
				}
				if !strings.Contains(first.schema, "9007199254740993") {
					t.Errorf("the schema lost digits: %s", first.schema)
				}

				s.model.play(w.says(reply{text: "ok", stop: "stop"}))
				s.run(t, "run-2", "and now?").wantFinished(t, "stop")
				want := append(append([]string{}, f.turns...), "user and now?")
				if w.name == harness.WireOpenAIChat {
					want = without(want, "sealed ")
				}
				if turns := s.asked(t, w).turns; strings.Join(turns, "\n") != strings.Join(want, "\n") {
					t.Errorf("the model is sent %q\nwant %q", turns, want)
				}
			})
		}
	})
}

func without(list []string, prefix string) []string {
	var out []string
	for _, s := range list {
		if !strings.HasPrefix(s, prefix) {
			out = append(out, s)
		}
	}
	return out
}

// A reasoning model's own seal goes back to its own wire only: after a change of
// the model it is nothing that another provider could read.
func TestSealOfAnotherWire(t *testing.T) {
	for _, pair := range [][2]wire{{anthropicWire(), responsesWire()}, {responsesWire(), anthropicWire()}} {
		from, to := pair[0], pair[1]
		s := newStand(t, on(from)...)
		s.model.play(from.says(reply{reasoning: "hm", text: "Hello.", stop: "stop"}))
		s.run(t, "run-1", "hi").wantFinished(t, "stop")
		other := newStand(t, on(to)...)
		other.thread = s.thread
		other.model.play(to.says(reply{text: "ok", stop: "stop"}))
		other.run(t, "run-2", "again").wantFinished(t, "stop")
		if got := strings.Join(other.asked(t, to).turns, "|"); got != "user hi|assistant Hello.|user again" {
			t.Errorf("the model is sent %s", got)
		}
	}
}

func TestUsageOnEachWire(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		s := newStand(t, on(w)...)
		s.model.play(
			w.says(reply{calls: []called{{"fs_list", "{}"}}, stop: "tool_calls", input: 100, output: 7, cached: 40}),
			w.says(reply{text: "ok", stop: "stop", input: 120, output: 3, cached: 100}))
		usages := of[event.UsageUpdated](s.run(t, "run-1", "hi"))
		final := 0
		for _, u := range usages {
			if u.Final {
				final++
			}
		}
		u := usages[len(usages)-1]
		if final != 1 || !u.Final || *u.InputTokens != 220 || *u.OutputTokens != 10 || *u.CachedInputTokens != 140 || u.Cost != nil {
			t.Errorf("usage: %+v", usages)
		}
		// What one answer did not tell, the sum does not know.
		s.model.play(
			w.says(reply{calls: []called{{"fs_list", "{}"}}, stop: "tool_calls", input: 100, output: 7, cached: 40}),
			w.says(reply{text: "ok", stop: "stop", input: 120, output: 3}))
		usages = of[event.UsageUpdated](s.run(t, "run-2", "hi"))
		if u := usages[len(usages)-1]; *u.InputTokens != 220 || u.CachedInputTokens != nil {
			t.Errorf("a sum of what is unknown: %+v", u)
		}
	})
}

// A stream that ends without its terminal is no answer, however much it said.
func TestCutOnEachWire(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		for _, r := range []reply{{text: "Hello.", stop: "stop"}, {calls: []called{{"fs_list", "{}"}}, stop: "tool_calls"}, {stop: "stop"}} {
			s := newStand(t, on(w)...)
			s.model.play(w.cut(r))
			s.run(t, "run-1", "hi").wantError(t, fault.ModelFailed)
			if s.thread.head.Revision != 0 || len(s.tools.called()) != 0 {
				t.Error("it was taken for an answer")
			}
		}
	})
}

// What a provider says of its failure ends the run by a code, and goes nowhere.
func TestFailuresOnEachWire(t *testing.T) {
	const secret = "secret text of the provider"
	inStream := map[harness.Wire]string{
		harness.WireOpenAIChat:        "data: {\"error\":{\"message\":\"" + secret + "\"}}\n\n",
		harness.WireOpenAIResponses:   "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"" + secret + "\"}}}\n\n",
		harness.WireAnthropicMessages: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"" + secret + "\"}}\n\n",
	}
	eachWire(t, func(t *testing.T, w wire) {
		for name, c := range map[string]struct {
			answer answers
			code   fault.Code
		}{
			"a bad request": {status(400, `{"type":"error","error":{"type":"invalid_request_error","message":"`+secret+`"}}`), fault.ModelFailed},
			"no permission": {status(403, `{"error":{"message":"`+secret+`"}}`), fault.ModelFailed},
			"throttled":     {status(429, `{"error":{"message":"`+secret+`"}}`), fault.RateLimited},
			"broken":        {status(500, secret), fault.ModelUnavailable},
			"away":          {status(503, secret), fault.ModelUnavailable},
			"overloaded":    {status(529, `{"type":"error","error":{"type":"overloaded_error","message":"`+secret+`"}}`), fault.ModelUnavailable},
			"stale":         {status(409, `{"error":{"code":"stale_lease","message":"`+secret+`"}}`), fault.StaleLease},
			"in the stream": {func(out http.ResponseWriter, _ *http.Request) {
				out.Header().Set("Content-Type", "text/event-stream")
				_, _ = out.Write([]byte(inStream[w.name]))
			}, fault.ModelFailed},
			"no JSON": {func(out http.ResponseWriter, _ *http.Request) {
				out.Header().Set("Content-Type", "text/event-stream")
				_, _ = out.Write([]byte("event: message_start\ndata: {" + secret + "\n\n"))
			}, fault.ModelFailed},
		} {
			t.Run(name, func(t *testing.T) {
				s := newStand(t, on(w)...)
				s.model.play(c.answer)
				got := s.run(t, "run-1", "hi")
				got.wantError(t, c.code)
				for _, e := range got {
					raw, err := e.MarshalJSON()
					must(t, err)
					if strings.Contains(string(raw), "secret") {
						t.Errorf("the provider's text stands in %s", raw)
					}
				}
			})
		}
	})
}

// The environment of a worker changes nothing about its model calls, and no
// credential is sent.
func TestEnvironmentIsNotRead(t *testing.T) {
	for _, name := range []string{
		"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET",
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE",
	} {
		t.Setenv(name, "from-the-environment")
	}
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "x-custom: from-the-environment")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "x-custom: from-the-environment")
	t.Setenv("ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE", "content")
	eachWire(t, func(t *testing.T, w wire) {
		s := newStand(t, on(w)...)
		s.model.play(w.says(reply{text: "ok", stop: "stop"}))
		s.run(t, "run-1", "hi").wantFinished(t, "stop")
		h := s.model.asked()[0].header
		for name, values := range h {
			if strings.Contains(strings.Join(values, " "), "environment") {
				t.Errorf("%s: %s", name, values)
			}
		}
		for _, name := range []string{"Authorization", "X-Api-Key", "Traceparent"} {
			if h.Get(name) != "" {
				t.Errorf("the adapter sends %s", name)
			}
		}
	})
}

// Images and documents go in the wire's own blocks, where the model takes them.
func TestFilesOnEachWire(t *testing.T) {
	png, pdf := "\x89PNG\r\n", "%PDF-1.7"
	url := func(mime, content string) string {
		return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString([]byte(content))
	}
	in := []harness.File{
		{Handle: "png", DisplayName: "a.png", MIMEType: "image/png", Size: uint64(len(png))},
		{Handle: "pdf", DisplayName: "b.pdf", MIMEType: "application/pdf", Size: uint64(len(pdf))},
		{Handle: "zip", DisplayName: "c.zip", MIMEType: "application/zip", Size: 3},
	}
	eachWire(t, func(t *testing.T, w wire) {
		s := newStand(t, on(w, func(c *harness.Construction) { c.Model.Images, c.Model.Documents = true, true })...)
		s.files.content["png"], s.files.content["pdf"] = png, pdf
		s.model.play(w.says(reply{text: "ok", stop: "stop"}))
		s.run(t, "run-1", "look", in...).wantFinished(t, "stop")
		want := []string{"image " + url("image/png", png), "document " + url("application/pdf", pdf), "user look\n\n[File \"c.zip\" of type application/zip, 3 bytes: cannot be shown to this model]"}
		if got := s.asked(t, w).turns; strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("the model is sent %q", got)
		}

		// The same conversation with a model that takes neither.
		other := newStand(t, on(w)...)
		other.thread = s.thread
		other.model.play(w.says(reply{text: "ok", stop: "stop"}))
		other.run(t, "run-2", "and now?", in[0]).wantFinished(t, "stop")
		got := strings.Join(other.asked(t, w).turns, "|")
		if strings.Contains(got, "base64") || strings.Count(got, "cannot be shown") != 4 {
			t.Errorf("the model is sent %s", got)
		}
	})
}
