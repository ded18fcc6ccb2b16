package native

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestTurn(t *testing.T) {
	s := newStand(t)
	s.model.play(stream(
		delta(`"role":"assistant","content":""`), reasoning("let me "), reasoning("think"), content("Hello, "), content("world."),
		finish("stop"), tokens(12, 3), done))
	got := s.run(t, "run-1", "hi")
	want := "run.started reasoning.started reasoning.delta reasoning.delta reasoning.finished " +
		"text.started text.delta text.delta text.finished usage.updated run.finished"
	if got.types() != want {
		t.Errorf("events: %s", got.types())
	}
	got.wantFinished(t, "stop")
	if got.text() != "Hello, world." {
		t.Errorf("text: %q", got.text())
	}
	u := of[event.UsageUpdated](got)[0]
	if *u.InputTokens != 12 || *u.OutputTokens != 3 || u.CachedInputTokens != nil || u.Cost != nil || !u.Final {
		t.Errorf("usage: %+v", u)
	}
	req := s.model.asked()[0]
	b := req.body
	if b.Model != "main" || !b.Stream || !b.StreamOptions.IncludeUsage || b.Temperature != 0.5 || b.MaxTokens != 100 {
		t.Errorf("request: %s", req.raw)
	}
	if len(b.Messages) != 2 || b.Messages[0].Role != "system" || b.Messages[0].Content != "be brief" || b.Messages[1].Content != "hi" {
		t.Errorf("messages: %+v", b.Messages)
	}
	if len(b.Tools) != 2 || b.Tools[0].Function.Name != "fs_read_file" {
		t.Errorf("tools: %s", req.raw)
	}
	if !strings.Contains(string(b.Tools[0].Function.Parameters), "9007199254740993") {
		t.Errorf("the schema lost digits: %s", b.Tools[0].Function.Parameters)
	}
	if auth := req.header.Get("Authorization"); auth != "" {
		t.Errorf("the adapter sends a credential of its own: %q", auth)
	}
}

// The next turn, also in another worker, knows the last one. No id comes twice in
// the conversation.
func TestThread(t *testing.T) {
	s := newStand(t)
	s.model.play(stream(content("I look."), toolDelta(0, "id", "fs_list", "{}"), finish("tool_calls"), done), answer1("It has a.txt."))
	first := s.run(t, "run-1", "what is there?")
	first.wantFinished(t, "stop")

	other := newStand(t)
	other.thread = s.thread
	other.model.play(stream(toolDelta(0, "id", "fs_list", "{}"), finish("tool_calls"), done), answer1("You asked what is there."))
	second := other.run(t, "run-2", "what did I ask?")
	second.wantFinished(t, "stop")

	var roles []string
	ids := map[string]int{}
	for _, m := range other.model.last(t) {
		roles = append(roles, m.Role)
		for _, c := range m.ToolCalls {
			ids[c.ID]++
		}
	}
	if got := strings.Join(roles, " "); got != "system user assistant tool assistant user assistant tool" {
		t.Errorf("messages: %s", got)
	}
	for _, d := range append(of[event.TextStarted](first), of[event.TextStarted](second)...) {
		ids[d.MessageID]++
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("the id %s comes %d times in the conversation", id, n)
		}
	}
	if s.thread.head.Revision != 2 || strings.Contains(s.thread.payload(), "be brief") {
		t.Errorf("head: %d, %s", s.thread.head.Revision, s.thread.head.Payload)
	}
}

// An answer of nothing leaves no message that a provider would refuse ever after.
func TestEmptyAnswer(t *testing.T) {
	s := newStand(t)
	s.model.play(stream(finish("stop"), done), answer1("hello"))
	got := s.run(t, "run-1", "one")
	if got.types() != "run.started run.finished" {
		t.Errorf("events: %s", got.types())
	}
	s.run(t, "run-2", "two").wantFinished(t, "stop")
	for _, m := range s.model.last(t) {
		if m.Content == "" {
			t.Errorf("an empty message was sent: %+v", m)
		}
	}
}

func TestThreadFails(t *testing.T) {
	for name, c := range map[string]struct {
		thread *thread
		code   fault.Code
		asked  int
	}{
		"cannot be loaded":        {&thread{loadErr: fault.New(fault.PersistenceFailed, "test")}, fault.PersistenceFailed, 0},
		"is damaged":              {&thread{head: harness.Head{Revision: 1, Payload: []byte(`{"conversation":{"messages":[{"role":"boss","parts":[]}]}}`)}}, fault.PersistenceFailed, 0},
		"has moved":               {&thread{commitErr: fault.New(fault.RevisionConflict, "test")}, fault.RevisionConflict, 1},
		"is of a replaced lease":  {&thread{commitErr: fault.New(fault.StaleLease, "test")}, fault.StaleLease, 1},
		"nobody knows whether":    {&thread{commitErr: fault.New(fault.ThreadDurabilityUncertain, "test")}, fault.ThreadDurabilityUncertain, 1},
		"is of another harness":   {&thread{loadErr: fault.New(fault.WorkerMismatch, "test")}, fault.WorkerMismatch, 0},
		"is of a future revision": {&thread{head: harness.Head{Revision: 1, Payload: []byte(`{"conversation":{"messages":[]},"summary":"x"}`)}}, fault.PersistenceFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.thread = c.thread
			s.model.play(answer1("ok"))
			s.run(t, "run-1", "hi").wantError(t, c.code)
			if n := len(s.model.asked()); n != c.asked {
				t.Errorf("the model was asked %d times", n)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Run("model calls", func(t *testing.T) {
		s := newStand(t, func(c *harness.Construction) { c.Limits.ModelCalls = 2 })
		s.model.play(callsTool("fs_list", "{}"), callsTool("fs_list", "{}"), answer1("never"))
		got := s.run(t, "run-1", "hi")
		got.wantFinished(t, stopModelCalls)
		if len(s.model.asked()) != 2 || len(of[event.Warning](got)) != 1 {
			t.Errorf("asked %d times: %s", len(s.model.asked()), got.types())
		}
		s.model.play() // the script goes on
		s.run(t, "run-2", "go on").wantFinished(t, "stop")
	})
	t.Run("tool calls", func(t *testing.T) {
		s := newStand(t, func(c *harness.Construction) { c.Limits.ToolCalls = 1 })
		s.model.play(callsTool("fs_list", "{}"), callsTool("fs_list", "{}"), answer1("ok"))
		got := s.run(t, "run-1", "hi")
		got.wantFinished(t, "stop")
		errs := of[event.ToolError](got)
		if len(s.tools.called()) != 1 || len(errs) != 1 || errs[0].Code != string(fault.Capacity) {
			t.Errorf("calls: %d, errors: %+v", len(s.tools.called()), errs)
		}
		if last := s.model.last(t); !strings.Contains(last[len(last)-1].Content, "used up its tool calls") {
			t.Errorf("the model reads %+v", last[len(last)-1])
		}
	})
	t.Run("state, in an answer", func(t *testing.T) {
		s := newStand(t, func(c *harness.Construction) { c.Limits.StateBytes = 1000 })
		s.model.play(stream(content(strings.Repeat("x", 600)), content(strings.Repeat("x", 600)), finish("stop"), done))
		s.run(t, "run-1", "hi").wantError(t, fault.StateTooLarge)
		if s.thread.head.Revision != 0 {
			t.Error("it was committed")
		}
	})
	t.Run("state, in arguments", func(t *testing.T) {
		s := newStand(t, func(c *harness.Construction) { c.Limits.StateBytes = 1000 })
		s.model.play(callsTool("fs_list", `{"x":"`+strings.Repeat("x", 1000)+`"}`))
		s.run(t, "run-1", "hi").wantError(t, fault.StateTooLarge)
	})
	t.Run("state, before more is done", func(t *testing.T) {
		s := newStand(t, func(c *harness.Construction) { c.Limits.StateBytes = 1000 })
		s.tools.answer = result(quote(strings.Repeat("x", 1000)))
		s.model.play(callsTool("fs_list", "{}"), callsTool("fs_list", "{}"))
		s.run(t, "run-1", "hi").wantError(t, fault.StateTooLarge)
		if len(s.model.asked()) != 1 || len(s.tools.called()) != 1 {
			t.Errorf("the model was asked %d times, tools were called %d times", len(s.model.asked()), len(s.tools.called()))
		}
	})
}

func TestFiles(t *testing.T) {
	s := newStand(t)
	s.files.content["h-1"] = "line one\x1b[2J"
	s.files.content["h-2"] = `{"a":1}`
	s.model.play(answer1("ok"))
	got := s.run(t, "run-1", "look",
		harness.File{Handle: "h-1", DisplayName: "a \"b\".txt", MIMEType: "text/plain", Size: 8},
		harness.File{Handle: "h-2", DisplayName: "b.json", MIMEType: "application/json", Size: 7},
		harness.File{Handle: "h-3", DisplayName: "c.png", MIMEType: "image/png", Size: 5},
		harness.File{Handle: "h-4", DisplayName: "d.txt", MIMEType: "text/plain", Size: maxFileText + 1})
	got.wantFinished(t, "stop")
	last := s.model.last(t)
	text := last[len(last)-1].Content
	for _, want := range []string{
		"look\n\n[File \"a \\\"b\\\".txt\"]\nline one\ufffd[2J", "[File \"b.json\"]\n{\"a\":1}",
		"[File \"c.png\" of type image/png, 5 bytes: cannot be shown to this model]", "[File \"d.txt\" of type text/plain, 131073 bytes: is too large to be shown]",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the message lacks %q: %q", want, text)
		}
	}
	if n := len(of[event.Warning](got)); n != 2 {
		t.Errorf("%d warnings", n)
	}
}

func TestFilesFail(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		code    fault.Code
	}{
		"not UTF-8":            {"\xff\xfe", fault.InvalidRequest},
		"larger than it says":  {strings.Repeat("x", maxFileText+1), fault.RequestTooLarge},
		"handle leads nowhere": {"", fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			if c.content != "" {
				s.files.content["h"] = c.content
			}
			s.run(t, "run-1", "look", harness.File{Handle: "h", MIMEType: "text/plain", Size: 3}).wantError(t, c.code)
			if len(s.model.asked()) != 0 {
				t.Error("the model was asked")
			}
		})
	}
}

// All files together are bounded as well.
func TestFilesTogether(t *testing.T) {
	s := newStand(t)
	var in []harness.File
	for _, h := range []string{"a", "b", "c"} {
		s.files.content[h] = strings.Repeat(h, maxFileText)
		in = append(in, harness.File{Handle: h, MIMEType: "text/plain", Size: maxFileText})
	}
	s.model.play(answer1("ok"))
	got := s.run(t, "run-1", "look", in...)
	got.wantFinished(t, "stop")
	if n := len(of[event.Warning](got)); n != 1 {
		t.Errorf("%d warnings", n)
	}
}
