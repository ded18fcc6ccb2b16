package stdio

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

func TestTurns(t *testing.T) {
	t.Parallel()
	s := newStand(t, "good", change{})
	first := s.run(t, "run-1", "one")
	first.wantFinished(t)
	if got := first.types(); got != "run.started text.started text.delta text.finished run.finished" {
		t.Errorf("events: %s", got)
	}
	second := s.run(t, "run-2", "two")
	second.wantFinished(t)
	if first.text() != "You said one after " || second.text() != "You said two after one;" {
		t.Errorf("said %q, then %q", first.text(), second.text())
	}
	if s.thread.state() != "one;two;" || s.world.Starts() != 2 {
		t.Errorf("state %q after %d starts", s.thread.state(), s.world.Starts())
	}
}

func TestToolCalls(t *testing.T) {
	t.Parallel()
	const result = `{"content":[{"type":"text","text":"contents"}]}`
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "calls", change{})
		got := s.run(t, "run-1", "go")
		got.wantFinished(t)
		if got.types() != "run.started tool.started tool.finished text.started text.delta text.finished run.finished" {
			t.Errorf("events: %s", got.types())
		}
		if got.text() != "c1 "+result+" <nil>" || s.tools.seen() != `c1 fs.read {"path":"a"}` {
			t.Errorf("said %q; the tool saw %q", got.text(), s.tools.seen())
		}
	})
	t.Run("one that fails", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "calls", change{})
		s.tools.call = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
			return harness.ToolResult{}, fault.New(fault.ToolDenied, "test")
		}
		got := s.run(t, "run-1", "go")
		got.wantFinished(t)
		if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != "tool_denied" || !strings.Contains(got.text(), "tool_denied") {
			t.Errorf("events %s, said %q", got.types(), got.text())
		}
	})
	t.Run("one that ends the run", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "calls", change{})
		s.tools.call = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
			return harness.ToolResult{}, fault.New(fault.StaleLease, "test")
		}
		s.run(t, "run-1", "go").wantError(t, fault.StaleLease)
	})
	t.Run("one that panics", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "calls", change{})
		s.tools.call = func(context.Context, harness.ToolCall) (harness.ToolResult, error) { panic("of a facade") }
		s.run(t, "run-1", "go").wantError(t, fault.Internal)
	})
	t.Run("several at once", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "parallel", change{})
		together := make(chan struct{}, 4)
		s.tools.call = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
			together <- struct{}{}
			for len(together) < 4 { // each waits for all
				select {
				case <-ctx.Done():
					return harness.ToolResult{}, ctx.Err()
				case <-time.After(time.Millisecond):
				}
			}
			return harness.ToolResult{Result: json.RawMessage(`1`)}, nil
		}
		got := s.run(t, "run-1", "go")
		got.wantFinished(t)
		if got.text() != "4" || len(of[event.ToolFinished](got)) != 4 {
			t.Errorf("said %q, events %s", got.text(), got.types())
		}
	})
	t.Run("more than the run may make", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "many calls", change{})
		got := s.run(t, "run-1", "go")
		got.wantFinished(t)
		if len(of[event.ToolFinished](got)) != 8 || len(of[event.ToolError](got)) != 4 || got.text() != "capacity" {
			t.Errorf("said %q, events %s", got.text(), got.types())
		}
	})
	t.Run("of a tool that was not offered", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "unknown tool", change{})
		got := s.run(t, "run-1", "go")
		got.wantFinished(t)
		if got.text() != "tool_not_allowed" || s.tools.seen() != "" || len(of[event.Warning](got)) != 1 || len(of[event.ToolStarted](got)) != 0 {
			t.Errorf("said %q, events %s", got.text(), got.types())
		}
	})
	t.Run("of the program's own, with a subagent", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "own tool", change{})
		got := s.run(t, "run-1", "go")
		got.wantFinished(t)
		if got.types() != "run.started tool.started namespace.entered tool.started tool.finished namespace.exited tool.finished run.finished" {
			t.Errorf("events: %s", got.types())
		}
	})
}

func TestMemory(t *testing.T) {
	t.Parallel()
	s := newStand(t, "memory", change{})
	got := s.run(t, "run-1", "go")
	got.wantFinished(t)
	if got.text() != "not_found 1 kept memory_scope_denied" {
		t.Errorf("said %q", got.text())
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	s := newStand(t, "files", change{preset: func(p *Preset) {
		p.Files = []PresetFile{{Path: ".config/agent", Content: "configured"}}
	}})
	r, err := s.Start(t.Context(), envelope("run-1", time.Minute), harness.Turn{
		RunID: "run-1", ConversationID: conversation, Message: "go", Deadline: time.Now().Add(time.Minute),
		Files:   []harness.File{{Handle: "h", DisplayName: "../../etc/pass wd.txt", MIMEType: "text/plain", Size: 4}},
		Uploads: []harness.Upload{{Handle: "small", MaxBytes: 2}, {Handle: "right", MaxBytes: 100}},
	}, nil)
	must(t, err)
	got := s.read(t, r)
	got.wantFinished(t)
	const at = hosted.Workspace + "/input/1-_.._etc_pass_wd.txt"
	if want := at + " 4 object-1 request_too_large configured<nil>"; got.text() != want {
		t.Errorf("said %q, want %q", got.text(), want)
	}
	if text, err := os.ReadFile(filepath.Join(s.world.Root, at)); err != nil || string(text) != "file" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if s.files.written != "right a.txt hello" {
		t.Errorf("uploaded %q", s.files.written)
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	t.Run("in pieces", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "large state", change{})
		s.run(t, "run-1", "go").wantFinished(t)
		if n := len(s.thread.state()); n != 4*48<<10+len("end") {
			t.Fatalf("the state has %d bytes", n)
		}
		if got := s.run(t, "run-2", "go"); got.text() != "196611" {
			t.Errorf("it got a state of %s bytes", got.text())
		}
	})
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		newStand(t, "too large a state", change{}).run(t, "run-1", "go").wantError(t, fault.StateTooLarge)
	})
	t.Run("of another format", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "good", change{})
		s.thread.head = harness.Head{Revision: 1, Payload: []byte("other")}
		s.run(t, "run-1", "go").wantError(t, fault.PersistenceFailed)
		if s.world.Starts() != 0 {
			t.Error("the program was started")
		}
	})
}

// A program has no hold on what it is told in an event, and the operator's log
// has it only where it was asked for.
func TestLog(t *testing.T) {
	t.Parallel()
	s := newStand(t, "logs", change{})
	got := s.run(t, "run-1", "go")
	got.wantFinished(t)
	if got.types() != "run.started run.finished" {
		t.Errorf("events: %s", got.types())
	}
	if l := s.logs.String(); !strings.Contains(l, "it works") || strings.Contains(l, "raw standard error") {
		t.Errorf("the log has %q", l)
	}
}

func TestProgramFails(t *testing.T) {
	t.Parallel()
	got := newStand(t, "fails", change{}).run(t, "run-1", "go")
	got.wantError(t, fault.RateLimited)
	if e, ok := got.end().(event.RunError); !ok || e.RetryAfterSeconds == nil || *e.RetryAfterSeconds != 7 {
		t.Errorf("ended by %#v", got.end())
	}
}

func TestNoProgram(t *testing.T) {
	t.Parallel()
	s := newStand(t, "good", change{preset: func(p *Preset) { p.Command = "/no/such/program" }})
	s.run(t, "run-1", "go").wantError(t, fault.HarnessOptionsInvalid)
}

func TestWorldIsGone(t *testing.T) {
	t.Parallel()
	s := newStand(t, "good", change{})
	s.world.Break(fault.New(fault.SandboxNotReady, "test"))
	if s.Ready(t.Context()).Ready {
		t.Error("ready without a world")
	}
	r := s.start(t, "run-1", "go", time.Minute)
	s.read(t, r).wantError(t, fault.SandboxNotReady)
	s.world.Break(nil)
}
