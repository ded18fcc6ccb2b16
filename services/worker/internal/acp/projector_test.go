package acp

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func testTools() catalogue {
	return newCatalogue([]harness.Tool{
		{ID: "demo.echo", OfferedName: "demo_echo", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)},
		{ID: "demo.any", OfferedName: "demo_any", InputSchema: json.RawMessage(`{"type":"object"}`)},
	})
}

// play feeds lines to a projector: updates as they stand in session/update, and
// "ask {toolCall}" for a question, "mcp" for a call of demo.echo at the endpoint.
// It judges the events and gives them in short.
func play(t *testing.T, lines ...string) []string {
	t.Helper()
	p := newProjector("t", testTools(), []string{"Model metadata for `"})
	m := event.NewMachine("run-1", "conversation-1", event.Bounds{})
	var out []string
	take := func(drafts []event.Draft) {
		t.Helper()
		for _, d := range drafts {
			if err := m.Accept(m.Stamp(d, time.Unix(1, 0).UTC())); err != nil {
				t.Fatalf("%s: %v", d.Data.Type(), err)
			}
			out = append(out, short(d.Data))
		}
	}
	take([]event.Draft{{Data: event.RunStarted{HarnessID: ID, AdapterVersion: Version}}})
	for _, l := range lines {
		switch {
		case l == "mcp":
			take(p.arrived(harness.Tool{ID: "demo.echo"}, nil))
		case strings.HasPrefix(l, "mcp "):
			take(p.arrived(harness.Tool{ID: "demo.echo"}, map[string]any{"x": map[string]any{"id": l[4:]}}))
		case strings.HasPrefix(l, "ask "):
			_, r, err := decodePermission(json.RawMessage(`{"sessionId":"s","toolCall":` + l[4:] + `}`))
			if err != nil {
				t.Fatal(err)
			}
			c, err := p.take(r)
			if err != nil {
				t.Fatal(err)
			}
			if c.tool == nil {
				c.tool = p.tools.find(c)
			}
			if c.tool == nil {
				take(p.follow(c, true))
			}
		case strings.HasPrefix(l, "old "):
			_, u, err := decodeUpdate(json.RawMessage(`{"sessionId":"s","update":` + l[4:] + `}`))
			if err != nil {
				t.Fatal(err)
			}
			p.outside(u)
		default:
			_, u, err := decodeUpdate(json.RawMessage(`{"sessionId":"s","update":` + l + `}`))
			if err != nil {
				t.Fatal(err)
			}
			drafts, err := p.update(u)
			if err != nil {
				t.Fatal(err)
			}
			take(drafts)
		}
	}
	take(p.finish(nil))
	if err := m.Check(m.Stamp(event.Draft{Data: event.RunFinished{StopReason: "x"}}, time.Unix(1, 0).UTC())); err != nil {
		t.Fatalf("the run cannot finish: %v", err)
	}
	return out[1:]
}

func short(d event.Data) string {
	switch d := d.(type) {
	case event.TextStarted, event.TextFinished, event.ReasoningStarted, event.ReasoningFinished:
		return string(d.Type())
	case event.TextDelta:
		return "text " + d.Delta
	case event.ReasoningDelta:
		return "thought " + d.Delta
	case event.ToolStarted:
		return "start " + d.ToolName + " " + string(d.Arguments)
	case event.ToolArgumentsDelta:
		return "args " + d.Delta
	case event.ToolFinished:
		return "finish " + string(d.Result)
	case event.ToolError:
		return "error " + d.Code
	case event.Warning:
		return "warning " + d.Code
	}
	return string(d.Type())
}

func call1(fields string) string {
	return `{"sessionUpdate":"tool_call","toolCallId":"c1",` + fields + `}`
}

func update1(fields string) string {
	return `{"sessionUpdate":"tool_call_update","toolCallId":"c1",` + fields + `}`
}

const (
	chunkHi   = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}`
	chunkNone = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""}}`
	thought   = `{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}`
	completed = `"status":"completed","content":[{"type":"content","content":{"type":"text","text":"out"}}]`
)

// The orders in which the agents tell of a turn with a tool.
func TestUpdatesBecomeEvents(t *testing.T) {
	text := []string{"text.started", "text hi", "text.finished"}
	bash := []string{`start agent.bash {"command":"ls"}`, `finish "out"`}
	for name, tc := range map[string]struct{ lines, want []string }{
		"opencode": {
			[]string{call1(`"title":"bash","status":"pending","rawInput":{}`), update1(`"status":"in_progress","rawInput":{"command":"ls"}`), `ask {"toolCallId":"c1","title":"bash","rawInput":{"command":"ls"}}`, update1(`"status":"in_progress"`), update1(completed), chunkHi},
			append(bash, text...),
		},
		"opencode, a first piece": {
			[]string{call1(`"title":"bash","status":"pending","rawInput":{"cwd":"/w"}`), update1(`"status":"in_progress","title":"ls","rawInput":{"command":"ls","cwd":"/w"}`), `ask {"toolCallId":"c1","title":"ls","rawInput":{"command":"ls"}}`, update1(completed)},
			[]string{`start agent.bash {"command":"ls","cwd":"/w"}`, `finish "out"`},
		},
		"opencode, asks first": {
			[]string{`ask {"toolCallId":"c1","title":"bash","rawInput":{"command":"ls"}}`, call1(`"title":"bash","status":"pending"`), update1(completed)}, bash,
		},
		"opencode, offered": {
			[]string{call1(`"title":"cofferdam_demo_echo","kind":"other","status":"pending"`), update1(`"status":"in_progress","rawInput":{"text":"x"}`), "mcp", update1(completed), chunkHi}, text,
		},
		"claude": {
			[]string{call1(`"title":"Terminal","kind":"execute","status":"pending","rawInput":{},"_meta":{"claudeCode":{"toolName":"Bash"}}`), update1(`"title":"ls","rawInput":{"command":"ls"}`), update1(`"rawInput":{"command":"ls","description":"Lists"}`), `ask {"toolCallId":"c1"}`, update1(`"_meta":{"claudeCode":{"toolName":"Bash"}}`), update1(completed), chunkHi},
			append([]string{"start agent.bash {}", `args {"command":"ls","description":"Lists"}`, `finish "out"`}, text...),
		},
		"claude, offered": {
			[]string{call1(`"title":"mcp__cofferdam__demo_echo","kind":"other","status":"pending","rawInput":{},"_meta":{"claudeCode":{"toolName":"mcp__cofferdam__demo_echo"}}`), update1(`"rawInput":{"text":"x"}`), "mcp", update1(completed)}, nil,
		},
		"gemini, asks": {
			[]string{`ask {"toolCallId":"run_shell_command-1732000000000","status":"pending","title":"ls (list)","kind":"execute"}`, `{"sessionUpdate":"tool_call_update","toolCallId":"run_shell_command-1732000000000",` + completed + `}`},
			[]string{`start agent.run_shell_command {"title":"ls (list)"}`, `finish "out"`},
		},
		"gemini, what it shows before is no result": {
			[]string{`ask {"toolCallId":"run_shell_command__call_bb05","status":"pending","title":"ls","kind":"execute","content":[{"type":"content","content":{"type":"text","text":"(Lists)"}}]}`, `{"sessionUpdate":"tool_call_update","toolCallId":"run_shell_command__call_bb05","status":"completed","title":"ls","content":[]}`},
			[]string{`start agent.run_shell_command {"title":"ls"}`, `finish ""`},
		},
		"gemini, rejected without an update": {
			[]string{`ask {"toolCallId":"run_shell_command-1732000000000","status":"pending","title":"ls","kind":"execute"}`},
			[]string{`start agent.run_shell_command {"title":"ls"}`, "error tool_outcome_unknown"},
		},
		"gemini, offered": {
			[]string{`ask {"toolCallId":"mcp_cofferdam_demo_echo-1732000000000","title":"demo_echo (cofferdam MCP Server)","kind":"other"}`, "mcp", `{"sessionUpdate":"tool_call_update","toolCallId":"mcp_cofferdam_demo_echo-1732000000000",` + completed + `}`}, nil,
		},
		"qwen": {
			[]string{call1(`"title":"ls","kind":"execute","status":"pending","rawInput":{"command":"ls"}`), chunkNone, `ask {"toolCallId":"c1","title":"ls"}`, update1(completed)},
			[]string{`start agent.execute {"command":"ls"}`, `finish "out"`},
		},
		"qwen, offered with a mark": {
			[]string{call1(`"title":"mcp__cofferdam__demo_echo_1791jhd","status":"pending","rawInput":{"text":"x"}`), "mcp", update1(completed)}, nil,
		},
		"copilot, failed without content": {
			[]string{call1(`"title":"run ls","kind":"execute","status":"pending","rawInput":{"command":"ls"}`), update1(`"status":"failed"`)},
			[]string{`start agent.execute {"command":"ls"}`, "error tool_failed"},
		},
		"copilot, no end after a cancel": {
			[]string{call1(`"title":"bash","status":"pending","rawInput":{"command":"ls"}`)},
			[]string{`start agent.bash {"command":"ls"}`, "error tool_outcome_unknown"},
		},
		"codex": {
			[]string{`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Model metadata for ` + "`fake-1`" + ` not found"}}`, call1(`"title":"ls -l","kind":"execute","status":"in_progress","rawInput":{"command":["ls"]},"content":[{"type":"terminal","terminalId":"x"}]`), update1(`"status":"completed","rawOutput":{"stdout":"out"}`)},
			[]string{`start agent.execute {"command":["ls"]}`, `finish {"stdout":"out"}`},
		},
		"codex, offered": {
			[]string{call1(`"title":"Tool: cofferdam/demo_echo","status":"in_progress","rawInput":{"server":"cofferdam","tool":"demo_echo","arguments":{"text":"x"}}`), `ask {"toolCallId":"c1","_meta":{"is_mcp_tool_approval":true}}`, "mcp", update1(`"status":"completed","rawOutput":{}`)}, nil,
		},
		"joined by the agent's id at the endpoint": {
			[]string{call1(`"title":"some title","status":"pending"`), "mcp c1", update1(`"status":"in_progress","rawInput":{"text":"x"}`), update1(completed)}, nil,
		},
		"pi": {
			[]string{`{"sessionUpdate":"session_info_update","title":"x"}`, call1(`"title":"bash","status":"pending","rawInput":{"command":"ls"}`), update1(`"status":"in_progress"`), update1(completed), chunkHi},
			append(bash, text...),
		},
		"pi, output of a terminal": {
			[]string{call1(`"title":"ls","kind":"execute","status":"in_progress","_meta":{"terminal_info":{"terminal_id":"c1"}}`), update1(`"status":"in_progress","_meta":{"terminal_output":{"terminal_id":"c1","data":"a "}}`), update1(`"status":"completed","_meta":{"terminal_output":{"data":"b"},"terminal_exit":{"exit_code":0}}`)},
			[]string{`start agent.execute {"title":"ls"}`, `finish "a b"`},
		},
		"pi, a tool that is no shell": {
			[]string{call1(`"title":"read","kind":"read","status":"pending","rawInput":{"path":"README.md"}`), update1(`"status":"in_progress"`), update1(completed)},
			[]string{`start agent.read {"path":"README.md"}`, `finish "out"`},
		},
		"a file's name is no tool's": {
			[]string{call1(`"title":"README.md","kind":"read","status":"in_progress","rawInput":{"path":"README.md"}`), update1(completed)},
			[]string{`start agent.read {"path":"README.md"}`, `finish "out"`},
		},
		"a command in parts is no tool's name": {
			[]string{call1(`"title":"make","kind":"execute","status":"in_progress","rawInput":{"command":["make"]}`), update1(completed)},
			[]string{`start agent.execute {"command":["make"]}`, `finish "out"`},
		},
		"codex, output of a terminal": {
			[]string{call1(`"title":"ls -l","kind":"execute","status":"in_progress","rawInput":{"command":"ls -l"}`), update1(`"status":"completed","_meta":{"terminal_output_delta":{"data":"a b\n"},"terminal_exit":{"exit_code":0}}`)},
			[]string{`start agent.execute {"command":"ls -l"}`, `finish "a b\n"`},
		},
		"cline, update first": {
			[]string{update1(`"status":"pending"`), `ask {"toolCallId":"c1","title":"run_commands","rawInput":{"commands":["ls"]}}`, update1(`"status":"in_progress"`), call1(`"title":"run_commands","status":"pending"`), update1(completed)},
			[]string{`start agent.run_commands {"commands":["ls"]}`, `finish "out"`},
		},
		"arguments after the start": {
			[]string{call1(`"title":"bash","status":"in_progress"`), update1(`"rawInput":{"command":"ls"}`), update1(completed)},
			[]string{`start agent.bash {"title":"bash"}`, `finish "out"`},
		},
		"arguments after a start without any": {
			[]string{call1(`"title":"bash","status":"in_progress","_meta":{"x":{"toolName":"bash"}}`), update1(`"rawInput":{"command":"ls"}`), update1(completed)},
			[]string{`start agent.bash {}`, `args {"command":"ls"}`, `finish "out"`},
		},
		"a status does not go back": {
			[]string{call1(`"title":"bash","status":"completed","rawInput":{"command":"ls"},"content":[{"type":"content","content":{"type":"text","text":"out"}}]`), update1(`"status":"in_progress"`), update1(`"status":"failed"`)}, bash,
		},
		"a message goes on after a call as another": {
			[]string{chunkHi, chunkNone, chunkHi, thought, thought, call1(`"title":"bash","status":"in_progress","rawInput":{"command":"ls"}`), chunkHi, update1(completed), chunkHi},
			[]string{"text.started", "text hi", "text hi", "text.finished", "reasoning.started", "thought hm", "thought hm", "reasoning.finished", `start agent.bash {"command":"ls"}`, "text.started", "text hi", `finish "out"`, "text hi", "text.finished"},
		},
		"a message of another id": {
			[]string{`{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"1"}}`, `{"sessionUpdate":"agent_message_chunk","messageId":"b","content":{"type":"text","text":"2"}}`},
			[]string{"text.started", "text 1", "text.finished", "text.started", "text 2", "text.finished"},
		},
		"updates of another turn's call": {
			[]string{"old " + call1(`"title":"bash","status":"pending"`), update1(completed), chunkHi}, text,
		},
		"an id that is used again": {
			[]string{"old " + call1(`"title":"bash","status":"pending"`), call1(`"title":"bash","status":"pending","rawInput":{"command":"ls"}`), update1(completed)}, bash,
		},
		"an offered tool that never came": {
			[]string{call1(`"title":"cofferdam_demo_echo","kind":"other","status":"pending","rawInput":{"text":"x"}`), update1(completed)},
			[]string{`start agent.demo_echo {"text":"x"}`, `finish "out"`},
		},
		"a command that is called like an offered tool": {
			[]string{call1(`"title":"cofferdam_demo_echo","kind":"execute","status":"pending","rawInput":{"command":"rm"}`), update1(completed)},
			[]string{`start agent.cofferdam_demo_echo {"command":"rm"}`, `finish "out"`},
		},
		"a command that is called like an open tool": {
			[]string{call1(`"title":"cofferdam_demo_any","kind":"execute","status":"pending","rawInput":{"command":"rm"}`), update1(completed)},
			[]string{`start agent.cofferdam_demo_any {"command":"rm"}`, `finish "out"`},
		},
		"plans, commands and modes": {
			[]string{`{"sessionUpdate":"plan","entries":[]}`, `{"sessionUpdate":"available_commands_update","availableCommands":[]}`, `{"sessionUpdate":"current_mode_update"}`, `{"sessionUpdate":"usage_update"}`, `{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"x"}}`}, nil,
		},
		"odd fields": {
			[]string{call1(`"title":7,"kind":[],"status":{},"content":"x","locations":3,"rawInput":"ls"`), update1(`"status":"completed","content":null,"rawOutput":"text"`)},
			[]string{`start agent.tool {}`, `finish "text"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := play(t, tc.lines...)
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestProjectorBounds(t *testing.T) {
	var many []string
	for i := range 70 {
		many = append(many, strings.Replace(call1(`"title":"bash","status":"in_progress","rawInput":{"i":1}`), "c1", "c"+strings.Repeat("x", i), 1))
	}
	got := play(t, many...)
	starts := 0
	for _, g := range got {
		if strings.HasPrefix(g, "start") {
			starts++
		}
	}
	if starts != maxOpenOwn || !strings.Contains(strings.Join(got, "\n"), "warning tool_calls_not_shown") {
		t.Errorf("%d starts", starts)
	}
	big, err := json.Marshal(strings.Repeat("x", 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	chunk := `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":` + string(big) + `}}`
	size := 0
	cut := false
	for _, g := range play(t, chunk, chunk, chunk) {
		if strings.HasPrefix(g, "text x") {
			size += len(g) - len("text ")
		}
		cut = cut || g == "warning text_cut"
	}
	if size != maxRunText || !cut {
		t.Errorf("%d bytes of text, cut %v", size, cut)
	}
	got = play(t, call1(`"title":"bash","status":"in_progress","rawInput":{"command":`+string(big)+`}`), update1(`"status":"completed","rawOutput":`+string(big)))
	if len(got) != 2 || got[0] != "start agent.bash {}" || len(got[1]) > event.MaxResultBytes+10 {
		t.Errorf("%.80q", got)
	}
	p := newProjector("t", testTools(), nil)
	for i := range maxCalls + 1 {
		_, err = p.take(report{key: string(rune('a'+i%26)) + strings.Repeat("x", i/26)})
	}
	if !fault.Is(err, fault.Protocol) {
		t.Errorf("one call too many: %v", err)
	}
}

func TestSameJSON(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[2]}`, ` {"b":[2], "a":1}`, true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":1}`, `{"a":1.0}`, false},
		{`{"a":1}`, `{"a":1} {}`, false},
		{`{"a":1}`, `{"a":1`, false},
		{`{}`, `{"a":null}`, false},
	} {
		if got := sameJSON(tc.a, tc.b); got != tc.want {
			t.Errorf("%s and %s: %v", tc.a, tc.b, got)
		}
	}
}
