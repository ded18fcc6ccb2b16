package demomodel

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// seeds of the fuzz tests: something of everything that the wires know.
var seeds = []string{
	`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	`{"messages":[{"role":"user","content":[{"type":"text","text":">>call a.b {}"}]}],"tools":[{"function":{"name":"a_b"}}]}`,
	`{"messages":[{"role":"user","content":">>call a.b {}"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"a_b"}}]},{"role":"tool","tool_call_id":"1","content":"x\ny"}],"tools":[{"function":{"name":"a_b"}}]}`,
	`{"messages":[{"role":"tool"},{}]}`, `{"messages":[null]}`, `[]`, ``, `null`,
	`{"input":"hi","instructions":"Make a title","stream":true}`,
	`{"input":[{"type":"additional_tools","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"a_b","parameters":{}}]}]},{"role":"user","content":[{"type":"input_text","text":"x\n>>call a.b {}\n>>bash ls"}]}]}`,
	`{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"1","name":"a"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"y"}]}],"text":{"format":{"type":"json_schema","schema":{"type":["null","object"]}}}}`,
	`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"<a>b</a>"}]}],"tools":[{"name":"Bash","input_schema":{"properties":{"command":{"type":"string"}}}}],"stream":true}`,
	`{"messages":[{"role":"user","content":[{"type":"text","text":"<a>"},{"type":"text","text":"</a><b c>"}]}],"output_config":{"format":{"type":"json_schema","schema":{"anyOf":[{"enum":[1]}]}}}}`,
	`{"contents":[{"parts":[{"text":"x\n>>call a.b {\"c\":[]}"}]}],"tools":[{"functionDeclarations":[{"name":"mcp_gw_a.b"}]}],"systemInstruction":{"parts":[{"text":"s"}]}}`,
	`{"contents":[{"role":"model","parts":[{"functionCall":{"name":"a","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"a","response":{"output":"x"}}}]}],"generationConfig":{"responseSchema":{"type":"ARRAY","minItems":9,"items":{"type":"STRING"}}}}`,
}

// Whatever is decoded on a wire is planned alike each time, calls only what is
// offered and nothing after results, and is answered as one answer of that wire.
func fuzzWire(f *testing.F, path string, on wire) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		req, err := on.decode([]byte(body))
		if err != nil {
			return
		}
		p, again := req.plan(), req.plan()
		if !slices.Equal(p.steps, again.steps) || !slices.Equal(p.calls, again.calls) {
			t.Fatalf("planned %+v, then %+v", p, again)
		}
		for _, c := range p.calls {
			if !slices.ContainsFunc(req.tools, func(o offer) bool { return o.name == c.name && o.namespace == c.namespace }) {
				t.Fatalf("calls %q, which is not offered", c.name)
			}
		}
		if last := req.messages[len(req.messages)-1]; last.role == roleTool && len(p.calls) > 0 {
			t.Fatalf("calls again after a result: %+v", p.calls)
		}
		if slices.ContainsFunc(p.steps, func(s step) bool {
			return s.kind != stepSay && s.kind != stepThink && s.kind != stepError || len(s.text) > 1<<16
		}) {
			return // takes its time, or ends badly
		}
		rec := httptest.NewRecorder()
		New().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		if whole := rec.Body.String(); !req.stream && !json.Valid([]byte(whole)) {
			t.Fatalf("answered %d %q", rec.Code, whole)
		}
	})
}

func FuzzChat(f *testing.F)      { fuzzWire(f, Path, chat{}) }
func FuzzResponses(f *testing.F) { fuzzWire(f, PathResponses, responses{}) }
func FuzzMessages(f *testing.F)  { fuzzWire(f, PathMessages, messages{}) }
func FuzzGemini(f *testing.F) {
	fuzzWire(f, PathGemini+"m:generateContent", gemini{model: "m"})
}

// A schema is a stranger's: whatever it is, the answer is JSON, and not endless.
func FuzzInstance(f *testing.F) {
	for _, seed := range []string{`{}`, `{"type":"object","properties":{"a":{"type":"string"},"b":{}},"required":["a"]}`, `{"enum":["x"]}`, `{"const":null}`, `{"type":"array","minItems":4,"items":{"type":"array","minItems":4,"items":{"type":"integer","minimum":3}}}`, `[]`, `{"minimum":"x"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if got := instance(json.RawMessage(schema)); !json.Valid([]byte(got)) || len(got) > 1<<20+len(schema)*maxValues {
			t.Fatalf("%q makes %d bytes: %.200s", schema, len(got), got)
		}
	})
}

func TestInstance(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"type":"array","minItems":4,"items":`, 15) + `{}` + strings.Repeat(`}`, 15)
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"title":{"type":"string"}},"required":["title"],"additionalProperties":false}`:                                 `{"title":"` + sideTitle + `"}`,
		`{"type":"OBJECT","properties":{"next":{"type":"STRING","enum":["user","model"]},"n":{"type":"INTEGER","minimum":3}},"required":["next","n"]}`: `{"n":3,"next":"user"}`,
		`{"anyOf":[{"type":["null","boolean"]},{"const":1}]}`:                                                                                          `false`,
		`{"const":{"a":1}}`:           `{"a":1}`,
		`{"type":"null"}`:             `null`,
		`{"type":"array","items":{}}`: `[]`,
		`{}`:                          `{}`,
		`[]`:                          `null`,
	} {
		if got := instance(json.RawMessage(schema)); got != want {
			t.Errorf("%s makes %s, want %s", schema, got, want)
		}
	}
	if got := instance(json.RawMessage(deep)); len(got) > 64<<10 {
		t.Errorf("a schema of %d bytes makes %d", len(deep), len(got))
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":    true,
		" \n": true,
		"<system-reminder>\nx\n</system-reminder>":                  true,
		"<a>1</a>\n<b c=\"d\">2</b>\n":                              true,
		"<environment_context>\n<cwd>/</cwd></environment_context>": true,
		"<current_datetime>2026</current_datetime>\n\nhello":        false,
		"hello":     false,
		"<a>open":   false,
		"<a>1</b>":  false,
		"< a></ a>": false,
		"<>x</>":    false,
		"<a":        false,
		"<é>x</é>":  false,
		"<system-reminder>x</system-reminder> hello": false,
	} {
		if got := isNote(text); got != want {
			t.Errorf("isNote(%q) = %v", text, got)
		}
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	strings3 := map[string]property{"command": {"string"}, "description": {"string"}, "is_background": {"boolean"}, "shellId": {"string"}}
	tests := map[string]struct {
		offers     []offer
		name, args string
	}{
		"pi":       {[]offer{{name: "read"}, {name: "bash", properties: map[string]property{"command": {"string"}}}}, "bash", `{"command":"a b"}`},
		"claude":   {[]offer{{name: "Bash", properties: strings3, required: []string{"command"}}}, "Bash", `{"command":"a b","description":"Runs the command of the message"}`},
		"gemini":   {[]offer{{name: "run_shell_command", properties: strings3, required: []string{"command", "is_background"}}}, "run_shell_command", `{"command":"a b","description":"Runs the command of the message","is_background":false}`},
		"codex":    {[]offer{{name: "exec_command", properties: map[string]property{"cmd": {"string"}, "justification": {"string"}}, required: []string{"cmd"}}}, "exec_command", `{"cmd":"a b"}`},
		"cline":    {[]offer{{name: "run_commands", properties: map[string]property{"commands": {"array"}}}}, "run_commands", `{"commands":["a b"]}`},
		"of MCP":   {[]offer{{name: "bash", namespace: "mcp__gw"}, {name: "mcp__gw__bash"}}, "", ""},
		"none":     {nil, "", ""},
		"by order": {[]offer{{name: "shell"}, {name: "bash"}}, "bash", `{"command":"a b"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, args, ok := shell(tt.offers, "a b")
			if ok != (tt.name != "") || o.name != tt.name || args != tt.args {
				t.Errorf("%q %s, %v", o.name, args, ok)
			}
		})
	}
}
