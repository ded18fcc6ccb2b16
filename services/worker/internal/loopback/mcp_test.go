package loopback_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/loopback"
)

func TestTheToolsThatAreOffered(t *testing.T) {
	s := newStand(t)
	s.begin(t)
	res, err := s.connect(t).ListTools(t.Context(), nil)
	must(t, err)
	if len(res.Tools) != 2 || res.Tools[0].Name != "fs_read" || !res.Tools[0].Annotations.ReadOnlyHint {
		t.Fatalf("tools %+v", res.Tools)
	}
	a := s.post(t, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	if !strings.Contains(a.body, "9007199254740993") || !strings.Contains(a.body, `"type":"object"`) {
		t.Errorf("the schema has lost something: %s", a.body)
	}
}

func call(t *testing.T, c *mcp.ClientSession, name, args string) (text string, isError bool) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	must(t, err)
	for _, c := range res.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, res.IsError
}

func TestCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		tool, args string
		answer     func(context.Context, harness.ToolCall) (harness.ToolResult, error)
		text       string
		isError    bool
		events     string
		made       int
	}{
		"a result":             {"fs_read", `{"n":1}`, nil, "done", false, "tool.started tool.finished", 1},
		"no arguments":         {"fs_read", `null`, nil, "done", false, "tool.started tool.finished", 1},
		"an error of the tool": {"fs_read", `{}`, gives(`{"content":[{"type":"text","text":"no such file"}]}`, true), "no such file", true, "tool.started tool.finished", 1},
		"other JSON":           {"fs_read", `{}`, gives(`[1,2]`, false), "[1,2]", false, "tool.started tool.finished", 1},
		"a fault":              {"fs_read", `{}`, fails(fault.ToolUnavailable), "Error tool_unavailable", true, "tool.started tool.error", 1},
		"needs approval":       {"fs_write", `{}`, nil, "Error approval_required", true, "tool.started tool.error", 0},
		"the broker wants one": {"fs_read", `{}`, fails(fault.ApprovalRequired), "Error approval_required", true, "tool.started tool.error", 1},
		"doubled keys":         {"fs_read", `{"a":1,"a":2}`, nil, "Error tool_arguments_invalid", true, "tool.started tool.error", 0},
		"keys of two cases":    {"fs_read", `{"a":1,"A":2}`, nil, "Error tool_arguments_invalid", true, "tool.started tool.error", 0},
		"large arguments":      {"fs_read", `{"a":"` + strings.Repeat("x", event.MaxArgumentsBytes-100) + `"}`, nil, "done", false, "tool.started" + strings.Repeat(" tool.arguments.delta", 4) + " tool.finished", 1},
		"too large arguments":  {"fs_read", `{"a":"` + strings.Repeat("x", event.MaxArgumentsBytes) + `"}`, nil, "Error tool_arguments_invalid", true, "tool.started tool.error", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.broker.answer = tc.answer
			_, rec := s.begin(t)
			text, isError := call(t, s.connect(t), tc.tool, tc.args)
			if !strings.HasPrefix(text, tc.text) || isError != tc.isError {
				t.Errorf("the program got %q, error %v", text, isError)
			}
			if rec.types() != tc.events {
				t.Errorf("events %s", rec.types())
			}
			if s.broker.count() != tc.made {
				t.Errorf("%d calls were made", s.broker.count())
			}
		})
	}
}

func gives(result string, isError bool) func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
	return func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{Result: json.RawMessage(result), IsError: isError}, nil
	}
}

func fails(c fault.Code) func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
	return func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{}, fault.New(c, "test")
	}
}

func TestWhatIsNotOffered(t *testing.T) {
	s := newStand(t)
	_, rec := s.begin(t)
	c := s.connect(t)
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "fs.read"}); err == nil {
		t.Error("a tool's id was taken for its name")
	}
	if rec.types() != "" || s.broker.count() > 0 {
		t.Error("something was called")
	}
}

func TestTheLimitOfToolCalls(t *testing.T) {
	s := newStand(t)
	_, rec := s.begin(t, func(c *loopback.RunConfig) { c.Limits.ToolCalls = 1 })
	c := s.connect(t)
	call(t, c, "fs_read", "{}")
	if text, isError := call(t, c, "fs_read", "{}"); !isError || !strings.HasPrefix(text, "Error capacity") {
		t.Errorf("beyond the limit: %q", text)
	}
	if s.broker.count() != 1 || rec.types() != "tool.started tool.finished tool.started tool.error" {
		t.Errorf("%d calls, events %s", s.broker.count(), rec.types())
	}
}

// What says that the run may do nothing more is told to whoever drives it.
func TestTheEndOfAuthority(t *testing.T) {
	s := newStand(t)
	s.broker.answer = fails(fault.StaleLease)
	run, _ := s.begin(t)
	call(t, s.connect(t), "fs_read", "{}")
	<-run.Fatal()
	if !fault.Is(run.Err(), fault.StaleLease) {
		t.Errorf("%v", run.Err())
	}
}

// A call that is under way ends with the run, and says nothing more.
func TestCallsEndWithTheRun(t *testing.T) {
	s := newStand(t)
	begun := make(chan struct{})
	s.broker.answer = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
		close(begun)
		<-ctx.Done()
		return harness.ToolResult{}, fault.From(ctx.Err(), "test")
	}
	run, rec := s.begin(t)
	c := s.connect(t)
	done := make(chan error, 1)
	go func() {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "fs_read", Arguments: json.RawMessage("{}")})
		if err == nil && res.IsError {
			err = errors.New("the tool failed")
		}
		done <- err
	}()
	<-begun
	if run.Calling() != 1 {
		t.Error("the call does not count")
	}
	run.Close()
	if rec.types() != "tool.started" {
		t.Errorf("events %s", rec.types())
	}
	if err := <-done; err == nil {
		t.Error("the program got a result")
	}
}

// gate is a Gate.
type gate struct {
	admission loopback.Admission
	asked     chan string
}

func (g *gate) Admit(loopback.Call) loopback.Admission { return g.admission }

func (g *gate) Ask(id string, _ loopback.Call) bool {
	g.asked <- id
	return true
}

func TestTheGate(t *testing.T) {
	s := newStand(t)
	g := &gate{admission: loopback.Admission{CallID: "carried", Arguments: json.RawMessage(`{"edited":true}`)}, asked: make(chan string, 1)}
	run, rec := s.begin(t, func(c *loopback.RunConfig) { c.Gate = g })
	c := s.connect(t)
	call(t, c, "fs_write", `{"edited":false}`)
	if rec.types() != "tool.finished" || s.broker.calls[0].CallID != "carried" || string(s.broker.calls[0].Arguments) != `{"edited":true}` {
		t.Errorf("events %s, calls %+v", rec.types(), s.broker.calls)
	}
	g.admission = loopback.Admission{Refuse: fault.New(fault.ToolDenied, "test")}
	if text, _ := call(t, c, "fs_write", `{}`); !strings.HasPrefix(text, "Error tool_denied") {
		t.Errorf("refused: %q", text)
	}
	g.admission = loopback.Admission{Ask: true}
	go func() {
		_, _ = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "fs_write", Arguments: json.RawMessage("{}")})
	}()
	if id := <-g.asked; id != "call-t-3" {
		t.Errorf("asked about %s", id)
	}
	run.Close()
	if rec.types() != "tool.finished tool.started tool.error tool.started" || s.broker.count() != 1 {
		t.Errorf("events %s, %d calls", rec.types(), s.broker.count())
	}
}

func TestToolsThatCannotBeOffered(t *testing.T) {
	for name, tools := range map[string][]harness.Tool{
		"no object":   {{OfferedName: "a", InputSchema: json.RawMessage(`[]`)}},
		"no schema":   {{OfferedName: "a"}},
		"of a string": {{OfferedName: "a", InputSchema: json.RawMessage(`{"type":"string"}`)}},
		"twice":       {{OfferedName: "a", InputSchema: json.RawMessage(`{}`)}, {OfferedName: "a", InputSchema: json.RawMessage(`{}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := loopback.Validate(tools); !fault.Is(err, fault.HarnessOptionsInvalid) {
				t.Errorf("%v", err)
			}
			if _, err := loopback.New(t.Context(), loopback.Config{Tools: tools, Logger: slog.New(slog.DiscardHandler)}); err == nil {
				t.Error("it was offered")
			}
		})
	}
}
