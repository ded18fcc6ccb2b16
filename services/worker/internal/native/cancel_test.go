package native

import (
	"context"
	"net/http"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// A cancel ends a run wherever it is: nothing is committed, nothing more is
// called, and nothing is left running.
func TestCancelAtEachPoint(t *testing.T) {
	w := chatWire()
	call := reply{calls: []called{{"fs_list", "{}"}}, stop: "tool_calls"}
	for name, c := range map[string]struct {
		change func(*harness.Construction)
		// script has cancel where the run is to be cancelled.
		script func(cancel func()) []answers
		tool   bool
		files  bool
		commit bool
	}{
		"before the model": {files: true},
		"before a token":   {script: func(cancel func()) []answers { return []answers{hangs(cancel)} }},
		"in a text":        {script: func(cancel func()) []answers { return []answers{hangs(cancel, content("Hel"))} }},
		"in a call":        {script: func(cancel func()) []answers { return []answers{hangs(cancel, toolDelta(0, "a", "fs_list", `{"`))} }},
		"in a tool":        {script: func(func()) []answers { return []answers{w.says(call)} }, tool: true},
		"after a tool":     {script: func(cancel func()) []answers { return []answers{w.says(call), hangs(cancel)} }},
		"in a subagent": {script: func(cancel func()) []answers {
			return []answers{callsTool("subagent_reader", `{"task":"x"}`), hangs(cancel, content("Hel"))}
		}, change: delegating},
		"in a subagent's tool": {script: func(func()) []answers { return []answers{callsTool("subagent_reader", `{"task":"x"}`), w.says(call)} }, change: delegating, tool: true},
		"in a retry":           {script: func(cancel func()) []answers { return []answers{status(429, `{}`, "Retry-After", "30"), hangs(cancel)} }, change: options(`{"model_retries":4}`)},
		"in the commit":        {script: func(func()) []answers { return []answers{answer1("ok")} }, commit: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, func(x *harness.Construction) {
				if c.change != nil {
					c.change(x)
				}
			})
			r := newRun(t, "run-1", 1<<40)
			if c.script != nil {
				s.model.play(c.script(r.cancel)...)
			}
			f := s.facades(r)
			s.tools.answer = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
				if !c.tool {
					return harness.ToolResult{Result: []byte(`1`)}, nil
				}
				r.cancel()
				<-ctx.Done()
				return harness.ToolResult{}, fault.From(ctx.Err(), "test")
			}
			var in []harness.File
			if c.files {
				in = append(in, harness.File{Handle: "h", MIMEType: "text/plain"})
				f.Files = cancelling{s.files, r.cancel}
			}
			if c.commit {
				f.Thread = lateThread{runThread{s.thread, r}, r.cancel}
			}
			emit := harness.Emitter(r)
			if name == "in a retry" {
				emit = cancelOn{r, event.TypeWarning, r.cancel}
			}
			got := r.begin(t, func(ctx context.Context) (harness.Result, error) {
				return s.runtime.Stream(ctx, s.turn("run-1", "go", in...), f, emit)
			}).read()
			if got.end().Type() != event.TypeRunCancelled || s.thread.head.Revision != 0 {
				t.Errorf("the run ended by %#v, revision %d", got.end(), s.thread.head.Revision)
			}
		})
	}
}

// hangs says something, cancels, and waits until nobody listens.
func hangs(cancel func(), chunks ...string) answers {
	return func(w http.ResponseWriter, r *http.Request) {
		write(w, chunks...)
		cancel()
		<-r.Context().Done()
	}
}

type cancelling struct {
	harness.Files
	cancel func()
}

func (c cancelling) Read(ctx context.Context, _ harness.File, _ int) ([]byte, error) {
	c.cancel()
	return nil, fault.From(ctx.Err(), "test")
}

type lateThread struct {
	runThread
	cancel func()
}

func (l lateThread) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	l.cancel()
	return l.runThread.Commit(ctx, c, revision, payload)
}

type cancelOn struct {
	*testRun
	on  event.Type
	end func()
}

func (c cancelOn) Emit(ctx context.Context, d event.Draft) error {
	err := c.testRun.Emit(ctx, d)
	if d.Data.Type() == c.on {
		c.end()
	}
	return err
}
