package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func result(raw string) func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
	return func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{Result: json.RawMessage(raw)}, nil
	}
}

// together says "done" once that many calls are under way.
func together(calls int) func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
	var all sync.WaitGroup
	all.Add(calls)
	return func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		all.Done()
		all.Wait()
		return harness.ToolResult{Result: json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`)}, nil
	}
}

func TestToolCall(t *testing.T) {
	s := newStand(t)
	s.tools.answer = result(`{"content":[{"type":"text","text":"the "},{"type":"image","data":"x"},{"type":"text","text":"line"}]}`)
	s.model.play(
		stream(content("I read it."), toolDelta(0, "toolu_1", "fs_read_file", ""), toolDelta(0, "", "", `{"path"`), toolDelta(0, "", "", `: "a.txt"}`), finish("tool_calls"), tokens(10, 1), done),
		stream(content("It says: the line"), finish("stop"), tokens(20, 2), done))
	got := s.run(t, "run-1", "read a.txt")
	want := "run.started text.started text.delta text.finished tool.started tool.finished usage.updated " +
		"text.started text.delta text.finished usage.updated run.finished"
	if got.types() != want {
		t.Errorf("events: %s", got.types())
	}
	got.wantFinished(t, "stop")
	started := of[event.ToolStarted](got)[0]
	if started.ToolName != "fs.read_file" || started.Arguments != `{"path":"a.txt"}` || started.ParentMessageID != of[event.TextStarted](got)[0].MessageID {
		t.Errorf("tool.started: %+v", started)
	}
	call := s.tools.called()[0]
	if call.ToolID != "fs.read_file" || call.CallID != started.ToolCallID || string(call.Arguments) != `{"path":"a.txt"}` {
		t.Errorf("the broker got %+v", call)
	}
	last := s.model.last(t)
	if m := last[len(last)-1]; m.Role != "tool" || m.ToolCallID != started.ToolCallID || m.Content != "the line" {
		t.Errorf("the model reads %+v", m)
	}
	if m := last[len(last)-2]; m.Role != "assistant" || m.Content != "I read it." || m.ToolCalls[0].Function.Name != "fs_read_file" {
		t.Errorf("the model said %+v", m)
	}
	usages := of[event.UsageUpdated](got)
	if usages[0].Final || !usages[1].Final || *usages[1].InputTokens != 30 || *usages[1].OutputTokens != 3 {
		t.Errorf("usage: %+v", usages)
	}
}

// Several calls of one answer run at once, and their results reach the model in
// the order of the calls.
func TestParallelCalls(t *testing.T) {
	const calls = 3
	s := newStand(t, func(c *harness.Construction) { c.Options = json.RawMessage(`{"parallel_tool_calls":3}`) })
	var together sync.WaitGroup
	together.Add(calls)
	s.tools.answer = func(_ context.Context, c harness.ToolCall) (harness.ToolResult, error) {
		together.Done()
		together.Wait() // ends only if all are under way
		return harness.ToolResult{Result: c.Arguments}, nil
	}
	var chunks []string
	for n := range calls {
		chunks = append(chunks, toolDelta(n, fmt.Sprint("id-", n), "fs_list", fmt.Sprintf(`{"n":%d}`, n)))
	}
	s.model.play(stream(append(chunks, finish("tool_calls"), done)...), answer1("ok"))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "stop")
	last := s.model.last(t)
	for n, m := range last[len(last)-calls:] {
		if m.Content != fmt.Sprintf(`{"n":%d}`, n) || m.ToolCallID != last[len(last)-calls-1].ToolCalls[n].ID {
			t.Errorf("message %d: %+v", n, m)
		}
	}
}

// A model may use an id twice, or give every call the index 0: each is a call of
// its own.
func TestCallsOfOddModels(t *testing.T) {
	for name, chunks := range map[string][]string{
		"one id twice":        {toolDelta(0, "same", "fs_list", `{"n":0}`), toolDelta(1, "same", "fs_read_file", `{"n":1}`)},
		"one index":           {toolDelta(0, "a", "fs_list", `{"n":0}`), toolDelta(0, "b", "fs_read_file", `{"n":1}`)},
		"one index, pieces":   {toolDelta(0, "a", "fs_list", `{"n":`), toolDelta(0, "a", "", `0}`), toolDelta(0, "b", "fs_read_file", ""), toolDelta(0, "", "", `{"n":1}`)},
		"holes":               {toolDelta(3, "a", "fs_list", `{"n":0}`), toolDelta(7, "b", "fs_read_file", `{"n":1}`)},
		"a negative index":    {toolDelta(-1, "a", "fs_list", `{"n":0}`), toolDelta(0, "b", "fs_read_file", `{"n":1}`)},
		"interleaved":         {toolDelta(0, "a", "fs_list", `{"n"`), toolDelta(1, "b", "fs_read_file", `{"n"`), toolDelta(0, "", "", `:0}`), toolDelta(1, "", "", `:1}`)},
		"a huge index":        {toolDelta(1<<40, "a", "fs_list", `{"n":0}`), toolDelta(1<<41, "b", "fs_read_file", `{"n":1}`)},
		"the name in pieces":  {toolDelta(0, "a", "fs_", ""), toolDelta(0, "", "list", `{"n":0}`), toolDelta(1, "b", "fs_read_file", `{"n":1}`)},
		"text between pieces": {toolDelta(0, "a", "fs_list", `{"n":0}`), content("and"), toolDelta(1, "b", "fs_read_file", `{"n":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, func(c *harness.Construction) { c.Options = json.RawMessage(`{"parallel_tool_calls":1}`) })
			s.model.play(stream(append(chunks, finish("tool_calls"), done)...), answer1("ok"))
			s.run(t, "run-1", "hi").wantFinished(t, "stop")
			var got []string
			ids := map[string]bool{}
			for _, c := range s.tools.called() {
				got = append(got, c.ToolID+string(c.Arguments))
				ids[c.CallID] = true
			}
			if fmt.Sprint(got) != `[fs.list{"n":0} fs.read_file{"n":1}]` || len(ids) != 2 {
				t.Errorf("calls: %v, ids: %v", got, ids)
			}
		})
	}
}

func TestTooManyCalls(t *testing.T) {
	s := newStand(t)
	var chunks []string
	for n := range maxCallsInAnswer + 1 {
		chunks = append(chunks, toolDelta(n, "", "fs_list", "{}"))
	}
	s.model.play(stream(append(chunks, finish("tool_calls"), done)...))
	s.run(t, "run-1", "hi").wantError(t, fault.ModelFailed)
	if len(s.tools.called()) != 0 {
		t.Error("tools were called")
	}
}

// Arguments that are not one acceptable JSON object are the model's mistake: the
// lifecycle holds, nothing is called, and the conversation stays usable.
func TestArgumentsRefused(t *testing.T) {
	for name, args := range map[string]string{
		"no JSON":           `{"path": a.txt}`,
		"cut off":           `{"path": "a`,
		"a list":            `[1]`,
		"a text":            `"a.txt"`,
		"null":              `null`,
		"a doubled key":     `{"path":"a","path":"b"}`,
		"a key in two ways": `{"path":"a","Path":"b"}`,
		"two objects":       `{}{}`,
		"a control":         `{"path":"\u0000"}`,
		"half a pair":       `{"path":"\ud83d"}`,
		"too deep":          strings.Repeat(`{"a":`, event.MaxArgumentsDepth) + `{}` + strings.Repeat(`}`, event.MaxArgumentsDepth),
		"too large":         `{"x":"` + strings.Repeat("x", event.MaxArgumentsBytes) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.model.play(callsTool("fs_list", args), answer1("sorry"))
			got := s.run(t, "run-1", "hi")
			got.wantFinished(t, "stop")
			errs := of[event.ToolError](got)
			if len(errs) != 1 || errs[0].Code != string(fault.ToolArgumentsInvalid) {
				t.Errorf("errors: %+v", errs)
			}
			if started := of[event.ToolStarted](got)[0]; started.Arguments != event.EmptyObject {
				t.Errorf("tool.started: %+v", started)
			}
			if len(s.tools.called()) != 0 {
				t.Error("the tool was called")
			}
			last := s.model.last(t)
			if got := last[len(last)-2].ToolCalls[0].Function.Arguments; got != `{}` {
				t.Errorf("the provider gets the arguments %s", got)
			}
			if got := last[len(last)-1].Content; !strings.Contains(got, "tool_arguments_invalid") {
				t.Errorf("the model reads %q", got)
			}
		})
	}
}

// No arguments at all are an object without keys.
func TestNoArguments(t *testing.T) {
	s := newStand(t)
	s.model.play(callsTool("fs_list", " "), answer1("ok"))
	s.run(t, "run-1", "hi").wantFinished(t, "stop")
	if got := string(s.tools.called()[0].Arguments); got != `{}` {
		t.Errorf("arguments: %s", got)
	}
}

// Arguments that the contract allows and one event has no room for are streamed.
func TestLargeArguments(t *testing.T) {
	s := newStand(t)
	args := `{"x":"` + strings.Repeat(`\"`, (event.MaxArgumentsBytes-10)/2) + `"}`
	s.model.play(callsTool("fs_list", args), answer1("ok"))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "stop")
	joined := ""
	for _, d := range of[event.ToolArgumentsDelta](got) {
		joined += d.Delta
	}
	if joined != args || string(s.tools.called()[0].Arguments) != args {
		t.Errorf("%d bytes of %d were streamed", len(joined), len(args))
	}
}

// A tool that was not offered is never called, under whatever name, and its name
// does not spoil the conversation.
func TestUnknownTool(t *testing.T) {
	for name, kept := range map[string]string{
		"rm_rf": "rm_rf", "": unnamed, "fs list!": "fslist", "fs.list": "fslist", "fs_list ": "fs_list", "\ufffd": unnamed, "FS_LIST": "FS_LIST",
		strings.Repeat("x", 300): strings.Repeat("x", maxName),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.model.play(callsTool(name, "{}"), answer1("sorry"))
			got := s.run(t, "run-1", "hi")
			got.wantFinished(t, "stop")
			if len(s.tools.called()) != 0 || len(of[event.ToolStarted](got)) != 0 || len(of[event.Warning](got)) != 1 {
				t.Errorf("calls: %d, events: %s", len(s.tools.called()), got.types())
			}
			last := s.model.last(t)
			if got := last[len(last)-2].ToolCalls[0].Function.Name; got != kept {
				t.Errorf("the provider gets the name %q", got)
			}
		})
	}
}

// What a tool or its broker says is for the model.
func TestToolErrors(t *testing.T) {
	for _, code := range []fault.Code{
		fault.ToolUnavailable, fault.ToolDenied, fault.ToolNotAllowed, fault.ToolOutcomeUnknown, fault.DependencyUnavailable,
		fault.DeadlineExceeded, fault.CapabilityMissing, fault.Internal,
	} {
		t.Run(string(code), func(t *testing.T) {
			s := newStand(t)
			s.tools.answer = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
				return harness.ToolResult{}, fault.Wrap(errors.New("secret cause"), code, "test", fault.Detail("path: required"))
			}
			s.model.play(callsTool("fs_list", "{}"), answer1("sorry"))
			got := s.run(t, "run-1", "hi")
			got.wantFinished(t, "stop")
			e := of[event.ToolError](got)[0]
			if e.Code != string(code) || e.Message != code.Message() || e.Retryable != code.Retryable() {
				t.Errorf("tool.error: %+v", e)
			}
			last := s.model.last(t)
			text := last[len(last)-1].Content
			if !strings.Contains(text, string(code)) || !strings.Contains(text, "path: required") || strings.Contains(text, "secret") {
				t.Errorf("the model reads %q", text)
			}
			if len(s.tools.called()) != 1 {
				t.Errorf("the tool was called %d times", len(s.tools.called()))
			}
		})
	}
}

// A run that may do nothing more ends, and its open tool call is closed.
func TestToolErrorsThatEndTheRun(t *testing.T) {
	for _, code := range []fault.Code{fault.StaleLease, fault.CapabilityExpired, fault.Cancelled} {
		t.Run(string(code), func(t *testing.T) {
			s := newStand(t)
			s.tools.answer = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
				return harness.ToolResult{}, fault.New(code, "test")
			}
			s.model.play(callsTool("fs_list", "{}"), answer1("never"))
			got := s.run(t, "run-1", "hi")
			got.wantError(t, code)
			if len(s.model.asked()) != 1 || s.thread.head.Revision != 0 {
				t.Error("the run went on")
			}
		})
	}
}

// A tool that says itself that it failed has given a result.
func TestToolSaysThatItFailed(t *testing.T) {
	s := newStand(t)
	s.tools.answer = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{Result: json.RawMessage(`{"content":[{"type":"text","text":"no such file"}],"isError":true}`), IsError: true, Ref: "obj-1"}, nil
	}
	s.model.play(callsTool("fs_list", "{}"), answer1("sorry"))
	got := s.run(t, "run-1", "hi")
	got.wantFinished(t, "stop")
	last := s.model.last(t)
	if f := of[event.ToolFinished](got); len(f) != 1 || f[0].ResultRef != "obj-1" || last[len(last)-1].Content != "Error: no such file" {
		t.Errorf("events: %s; the model reads %q", got.types(), last[len(last)-1].Content)
	}
}

// Whatever a result is, it fits an event and the run goes on.
func TestOddResults(t *testing.T) {
	for name, raw := range map[string]string{
		"nothing": ``, "null": `null`, "no JSON": "\xff\x00{", "a control": `{"a":"\u0000"}`, "large": quote(strings.Repeat("x", 2*event.MaxResultBytes)),
		"deep": strings.Repeat("[", 100) + strings.Repeat("]", 100), "content of another kind": `{"content":"text"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.tools.answer = result(raw)
			s.model.play(callsTool("fs_list", "{}"), answer1("ok"))
			got := s.run(t, "run-1", "hi")
			got.wantFinished(t, "stop")
			if f := of[event.ToolFinished](got)[0]; len(f.Result) > event.MaxResultBytes {
				t.Errorf("a result of %d bytes", len(f.Result))
			}
		})
	}
}

// A panic in a call ends the run, not the worker.
func TestPanicInACall(t *testing.T) {
	s := newStand(t)
	s.tools.answer = func(context.Context, harness.ToolCall) (harness.ToolResult, error) { panic("in a goroutine") }
	s.model.play(callsTool("fs_list", "{}"), answer1("ok"))
	s.run(t, "run-1", "hi").wantError(t, fault.Internal)
	s.tools.answer = nil
	s.run(t, "run-2", "hi").wantFinished(t, "stop")
}

// A cancel ends calls that are under way, and the run says that they may have had
// an effect.
func TestCancelInATool(t *testing.T) {
	s := newStand(t)
	begun := make(chan struct{})
	s.tools.answer = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
		close(begun)
		<-ctx.Done()
		return harness.ToolResult{}, fault.From(ctx.Err(), "test")
	}
	s.model.play(callsTool("fs_list", "{}"), answer1("never"))
	r := s.start(t, "run-1", "hi")
	<-begun
	r.cancel()
	got := r.read()
	if end, ok := got.end().(event.RunCancelled); !ok || end.Reason != event.CancelledByClient {
		t.Errorf("the run ended by %#v", got.end())
	}
	if got.types() != "run.started tool.started tool.error run.cancelled" || len(s.model.asked()) != 1 {
		t.Errorf("events: %s", got.types())
	}
}
