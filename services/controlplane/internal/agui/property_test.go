package agui_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/services/controlplane/internal/agui"
)

func encode(tb interface {
	Helper()
	Fatalf(format string, args ...any)
}, e *agui.Encoder, events ...event.Event,
) (frames [][]byte) {
	tb.Helper()
	for _, ev := range events {
		more, err := e.Encode(ev)
		if err != nil {
			tb.Fatalf("encode %s: %v", ev.Type(), err)
		}
		frames = append(frames, more...)
	}
	return frames
}

func TestEveryRunBecomesAStrictStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := eventtest.Run().Draw(t, "run")
		frames := encode(t, agui.NewEncoder("thread", "run"), run...)
		r := reader{threadID: "thread", runID: "run"}
		if err := r.read(frames); err != nil {
			t.Fatal(err)
		}
		if got, want := said(r.messages), told(run); got != want {
			t.Fatalf("the stream says\n%s\nthe run says\n%s", got, want)
		}
	})
}

func TestEveryResumedRunBecomesAStrictStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := eventtest.Resumed().Draw(t, "run")
		frames := encode(t, agui.NewEncoder("thread", "run", agui.Resumes(g.AskedBy, g.Carried)), g.Events...)
		if err := resumes(g).read(frames); err != nil {
			t.Fatal(err)
		}
	})
}

// resumes reads the stream of a run that resumes another one.
func resumes(g eventtest.Golden) *reader {
	r := &reader{threadID: "thread", runID: "run"}
	for _, c := range g.Carried {
		r.waiting = append(r.waiting, g.AskedBy+"/call/"+c.ToolCallID)
	}
	return r
}

// A client that comes back gets RUN_STARTED, what is open, and the rest. That is
// a strict stream as well, wherever it was cut.
func TestEveryCutOfARunBecomesAStrictStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := eventtest.Run().Draw(t, "run")
		cut := rapid.IntRange(1, len(run)-1).Draw(t, "cut")
		e := agui.NewEncoder("thread", "run")
		frames := encode(t, e, run[0])
		encode(t, e, run[1:cut]...)
		again, err := e.Reopen()
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, again...)
		frames = append(frames, encode(t, e, run[cut:]...)...)
		r := reader{threadID: "thread", runID: "run", joined: true}
		// A snapshot restates more than such a reader has seen.
		frames = without(frames, `"type":"MESSAGES_SNAPSHOT"`)
		if err := r.read(frames); err != nil && !strings.Contains(err.Error(), "snapshots [STATE_SNAPSHOT]") {
			t.Fatal(err)
		}
	})
}

func without(frames [][]byte, text string) (out [][]byte) {
	for _, f := range frames {
		if !strings.Contains(string(f), text) {
			out = append(out, f)
		}
	}
	return out
}

// said is all text and reasoning of a conversation, told that of a run.
func said(messages []object) string {
	var text, thought strings.Builder
	for _, m := range messages {
		switch m["role"] {
		case "assistant":
			text.WriteString(str(m, "content"))
		case "reasoning":
			thought.WriteString(str(m, "content"))
		}
	}
	return text.String() + "\n" + thought.String()
}

func told(run []event.Event) string {
	kinds := [2]struct {
		order []string
		by    map[string]string
	}{{by: map[string]string{}}, {by: map[string]string{}}}
	for _, e := range run {
		switch d := e.Data.(type) {
		case event.TextStarted:
			kinds[0].order = append(kinds[0].order, d.MessageID)
		case event.ReasoningStarted:
			kinds[1].order = append(kinds[1].order, d.MessageID)
		case event.TextDelta:
			kinds[0].by[d.MessageID] += d.Delta
		case event.ReasoningDelta:
			kinds[1].by[d.MessageID] += d.Delta
		}
	}
	var out [2]string
	for i, k := range kinds {
		for _, id := range k.order {
			out[i] += k.by[id]
		}
	}
	return out[0] + "\n" + out[1]
}
