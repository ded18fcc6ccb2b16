package native

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// narrow is a model with little room.
func narrow(tokens int) func(*harness.Construction) {
	return func(c *harness.Construction) {
		c.Model.ContextTokens, c.Model.MaxOutputTokens = tokens, 100
		c.Limits.ModelCalls, c.Limits.ToolCalls = 40, 40
	}
}

// chat has turns that each take about 100 tokens.
func (s *stand) chat(t *testing.T, w wire, turns int) {
	t.Helper()
	for n := range turns {
		s.model.play(w.says(reply{calls: []called{{"fs_list", fmt.Sprintf(`{"n":%d}`, n)}}, stop: "tool_calls"}), w.says(reply{text: strings.Repeat("answer ", 20), stop: "stop"}))
		s.run(t, fmt.Sprint("early-", n), fmt.Sprintf("question %d %s", n, strings.Repeat("x", 200))).wantFinished(t, "stop")
	}
}

// wantPaired finds a call without its result, or the other way round.
func wantPaired(t *testing.T, turns []string) {
	t.Helper()
	open := 0
	for _, s := range turns {
		switch {
		case strings.HasPrefix(s, "call "):
			open++
		case strings.HasPrefix(s, "result "):
			open--
		}
		if open < 0 {
			t.Errorf("a result without its call: %q", turns)
			return
		}
	}
	if open != 0 {
		t.Errorf("a call without its result: %q", turns)
	}
}

// When the model's context nears its end, older turns become a summary that the
// model wrote in a call of its own, and the run goes on.
func TestCompaction(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		s := newStand(t, on(w)...)
		s.chat(t, w, 6)
		before := len(s.asked(t, w).turns)
		small := s.fresh(t, on(w, narrow(600))...)
		small.model.play(w.says(reply{text: "They asked six questions.", stop: "stop", input: 400, output: 5}), w.says(reply{text: "ok", stop: "stop", input: 200, output: 1}))
		got := small.run(t, "run-1", "and now?")
		got.wantFinished(t, "stop")
		if got.text() != "ok" {
			t.Errorf("people see %q", got.text())
		}
		warnings := of[event.Warning](got)
		if len(warnings) != 1 || warnings[0].Code != "context_compacted" || !strings.Contains(string(warnings[0].Details), `"summarized":true`) {
			t.Errorf("warnings: %+v", warnings)
		}
		side, err := w.read([]byte(small.model.asked()[0].raw))
		must(t, err)
		if len(side.tools) != 0 || side.system != summaryPrompt || len(side.turns) != 1 || !strings.Contains(side.turns[0], "question 0") {
			t.Errorf("the summary was asked for by %+v", side)
		}
		now := small.asked(t, w).turns
		if len(now) >= before || now[0] != "user "+summarized+"They asked six questions." || now[len(now)-1] != "user and now?" {
			t.Errorf("the model is sent %q", now)
		}
		wantPaired(t, now)
		if usages := of[event.UsageUpdated](got); *usages[len(usages)-1].InputTokens != 600 {
			t.Errorf("usage: %+v", usages)
		}
		if strings.Contains(s.thread.payload(), "question 0") {
			t.Error("the state keeps what was left out")
		}
	})
}

// Without a summary the oldest turns just go.
func TestCompactionWithoutASummary(t *testing.T) {
	for name, answer := range map[string]answers{
		"the call fails":  status(500, `{}`),
		"it is cut off":   stream(content("They as")),
		"it says nothing": stream(finish("stop"), done),
	} {
		t.Run(name, func(t *testing.T) {
			w := chatWire()
			s := newStand(t)
			s.chat(t, w, 6)
			small := s.fresh(t, narrow(600))
			small.model.play(answer, answer1("ok"))
			got := small.run(t, "run-1", "and now?")
			got.wantFinished(t, "stop")
			if warnings := of[event.Warning](got); len(warnings) != 1 || !strings.Contains(string(warnings[0].Details), `"summarized":false`) {
				t.Errorf("warnings: %+v", warnings)
			}
			now := small.asked(t, w).turns
			if now[0] != "user "+leftOut || now[len(now)-1] != "user and now?" {
				t.Errorf("the model is sent %q", now)
			}
			wantPaired(t, now)
		})
	}
	t.Run("the run may do nothing more", func(t *testing.T) {
		s := newStand(t)
		s.chat(t, chatWire(), 6)
		small := s.fresh(t, narrow(600))
		small.model.play(status(409, `{"error":{"code":"stale_lease"}}`))
		small.run(t, "run-1", "and now?").wantError(t, fault.StaleLease)
	})
	t.Run("the model calls are used up", func(t *testing.T) {
		s := newStand(t)
		s.chat(t, chatWire(), 6)
		small := s.fresh(t, narrow(600), func(c *harness.Construction) { c.Limits.ModelCalls = 1 })
		small.model.play(answer1("ok"))
		small.run(t, "run-1", "and now?").wantFinished(t, "stop")
	})
}

// What the provider counted decides, and nothing does where the context is not
// known.
func TestCompactionByWhatWasCounted(t *testing.T) {
	for name, c := range map[string]struct {
		tokens, counted int
		asked           int
	}{
		"near the end":  {10_000, 8100, 3},
		"far from it":   {10_000, 7000, 2},
		"nobody knows":  {0, 1 << 30, 2},
		"another bound": {10_000, 5100, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := chatWire()
			s := newStand(t, narrow(c.tokens))
			if name == "another bound" {
				s = newStand(t, narrow(c.tokens), options(`{"compact_at_percent":50}`))
			}
			s.model.play(w.says(reply{calls: []called{{"fs_list", `{}`}}, stop: "tool_calls", input: c.counted, output: 1}))
			s.model.play(answer1("summary or ok"), answer1("ok"))
			s.run(t, "run-1", "hi").wantFinished(t, "stop")
			if n := len(s.model.asked()); n != c.asked {
				t.Errorf("the model was asked %d times", n)
			}
			wantPaired(t, s.asked(t, w).turns)
		})
	}
}

// A provider that says that the conversation is too long is asked once more, with
// less.
func TestTooLong(t *testing.T) {
	tooLong := map[string]answers{
		"openai":    status(400, `{"error":{"message":"This model's maximum context length is 10 tokens.","code":"context_length_exceeded"}}`),
		"anthropic": status(400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 12 tokens > 10 maximum"}}`),
		"proxy":     status(413, `{"error":{"code":"request_too_large"}}`),
		"stream":    stream(`{"error":{"code":"context_length_exceeded","message":"x"}}`),
	}
	for name, answer := range tooLong {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.chat(t, chatWire(), 4)
			asked := len(s.model.asked())
			s.model.play(answer, answer1("short"), answer1("ok"))
			got := s.run(t, "run-1", "and now?")
			got.wantFinished(t, "stop")
			if n := len(s.model.asked()) - asked; n != 3 || len(of[event.Warning](got)) != 1 {
				t.Errorf("asked %d times: %s", n, got.types())
			}
			s.model.play(answer, answer1("short"), answer)
			if e, ok := s.run(t, "run-2", "and now?").end().(event.RunError); !ok || e.Retryable {
				t.Errorf("twice too long ended as %+v", e)
			}
		})
	}
	t.Run("a single message", func(t *testing.T) {
		s := newStand(t)
		s.model.play(tooLong["openai"])
		s.run(t, "run-1", "hi").wantError(t, fault.ModelFailed)
		if len(s.model.asked()) != 1 {
			t.Error("there was nothing to leave out")
		}
	})
}

// A state that would pass its bound is shortened before it is too large.
func TestCompactionOfTheState(t *testing.T) {
	w := chatWire()
	s := newStand(t)
	s.chat(t, w, 6)
	small := s.fresh(t, func(c *harness.Construction) { c.Limits.StateBytes = 2500 })
	small.model.play(answer1("six questions"), answer1("ok"))
	got := small.run(t, "run-1", "and now?")
	got.wantFinished(t, "stop")
	if len(of[event.Warning](got)) != 1 || len(s.thread.payload()) > 2500 || !strings.Contains(s.thread.payload(), "six questions") {
		t.Errorf("%s: %d bytes", got.types(), len(s.thread.payload()))
	}
	wantPaired(t, small.asked(t, w).turns)
	// The answer itself is what passes it.
	small.model.play(answer1(strings.Repeat("long ", 300)), answer1("shorter"))
	small.run(t, "run-2", "tell").wantFinished(t, "stop")
	if len(s.thread.payload()) > 2500 {
		t.Errorf("%d bytes", len(s.thread.payload()))
	}
}

// A run that waits for a person is shortened as well, but never where it waits.
func TestCompactionOfWhatWaits(t *testing.T) {
	w := chatWire()
	s := newStand(t, narrow(0))
	s.chat(t, w, 6)
	small := s.fresh(t, approvals, func(c *harness.Construction) {
		c.Limits.StateBytes, c.Limits.ModelCalls = len(s.thread.payload())+500, 40
	})
	small.model.play(w.says(reply{calls: []called{{"fs_read_file", `{"x":"` + strings.Repeat("x", 900) + `"}`}}, stop: "tool_calls"}), answer1("six questions"))
	before := small.run(t, "run-1", "go")
	before.wantInterrupted(t)
	if !strings.Contains(s.thread.payload(), "six questions") {
		t.Errorf("the state was not shortened: %s", before.types())
	}
	small.model.play(answer1("ok"))
	small.decide(t, "run-2", before, each(before.wantInterrupted(t), event.DecisionApprove)).wantFinished(t, "stop")
	wantPaired(t, small.asked(t, w).turns)
}

// Cleared threads begin anew.
func TestClear(t *testing.T) {
	s := newStand(t)
	s.chat(t, chatWire(), 1)
	s.thread.head = harness.Head{}
	s.model.play(answer1("ok"))
	s.run(t, "run-1", "who are you?").wantFinished(t, "stop")
	if turns := s.asked(t, chatWire()).turns; len(turns) != 1 {
		t.Errorf("the model is sent %q", turns)
	}
}

// FuzzCut: wherever a conversation is cut, no call is parted from its result and
// the last answer stays whole.
func FuzzCut(f *testing.F) {
	f.Add([]byte("uatuatu"), 10)
	f.Add([]byte("uattta"), 1)
	f.Fuzz(func(t *testing.T, roles []byte, most int) {
		var c conversation
		for i, r := range roles {
			switch r % 4 {
			case 0:
				c.Messages = append(c.Messages, text("user", "hi"))
			case 1:
				c.Messages = append(c.Messages, text("assistant", strings.Repeat("x", i)))
			default:
				if n := len(c.Messages); n > 0 && c.Messages[n-1].Role == "assistant" {
					c.Messages = append(c.Messages, text("tool", "result"))
				}
			}
		}
		at := c.cut(keep{tokens: max(most, 1)})
		if at < 0 || at > len(c.Messages) || at == len(c.Messages) && at > 0 {
			t.Fatalf("cut at %d of %d", at, len(c.Messages))
		}
		if at < len(c.Messages) && c.Messages[at].Role == "tool" {
			t.Fatal("a result is parted from its call")
		}
	})
}

// What is quoted for a summary is bounded, and valid text.
func TestTranscript(t *testing.T) {
	var c conversation
	for range 400 {
		c.Messages = append(c.Messages, text("user", strings.Repeat("ä", 3000)))
	}
	got := transcript(c.Messages, 10_001)
	if len(got) > 10_050 || !json.Valid([]byte(quote(got))) || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("%d bytes", len(got))
	}
	var q quiet
	err := q.Text(t.Context(), strings.Repeat("x", maxSummary+1))
	if err == nil {
		t.Error("a summary without end is read")
	}
}
