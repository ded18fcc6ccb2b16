package demomodel_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/demomodel"
)

// turn is one entry of a conversation, whichever wire it is written for.
type turn struct {
	user   []string // blocks of text
	said   string   // by the assistant
	call   *call    // by the assistant
	result string   // of the call with the id in call
}

// speaker writes and reads one wire.
type speaker struct {
	path func(stream bool) string
	// body is a request with these turns; extra fields go on top.
	body func(stream bool, system string, tools []string, turns []turn) map[string]any
	// read makes sense of an answer; done tells whether it has its terminal.
	read func(t *testing.T, stream bool, body string) (s said, done bool)
}

func speakers() map[string]speaker {
	return map[string]speaker{
		"chat":      {fixed(demomodel.Path), chatBody, readChat},
		"responses": {fixed(demomodel.PathResponses), responsesBody, readResponses},
		"messages":  {fixed(demomodel.PathMessages), messagesBody, readMessages},
		"gemini":    {geminiPath, geminiBody, readGemini},
	}
}

func fixed(path string) func(bool) string { return func(bool) string { return path } }

func geminiPath(stream bool) string {
	if stream {
		return demomodel.PathGemini + "demo:streamGenerateContent?alt=sse"
	}
	return demomodel.PathGemini + "demo:generateContent"
}

// says sends turns both ways on one wire and demands the same answer.
func (s speaker) says(t *testing.T, system string, tools []string, turns ...turn) said {
	t.Helper()
	srv := serve(t)
	var answers []said
	for _, stream := range []bool{true, true, false} {
		got := s.send(t, srv.URL, stream, s.body(stream, system, tools, turns))
		if got.status != http.StatusOK || got.err != nil {
			t.Fatalf("answered %+v", got)
		}
		a, done := s.read(t, stream, got.body)
		if !done {
			t.Errorf("no terminal: %s", got.body)
		}
		answers = append(answers, a)
	}
	if !same(answers[0], answers[1]) || !same(answers[0], answers[2]) {
		t.Errorf("streamed %+v, then %+v, whole %+v", answers[0], answers[1], answers[2])
	}
	return answers[0]
}

func (s speaker) send(t *testing.T, url string, stream bool, body any) reply {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return postTo(t, url+s.path(stream), string(data))
}

func user1(blocks ...string) turn { return turn{user: blocks} }

// The same script does the same on every wire.
func TestEveryWireObeys(t *testing.T) {
	t.Parallel()
	tools := []string{"fs_list_directory", "mcp__gw__demo_echo", "bash"}
	tests := map[string]struct {
		turns []turn
		want  said
	}{
		"say":               {[]turn{user1("Please:\n>>say Hello  there\n>>usage 12 34")}, said{text: "Hello  there", in: 12, out: 34}},
		"think and say":     {[]turn{user1(">>think hm\n>>say one\n>>think so\n>>say two")}, said{thought: "hm\nso", text: "one\ntwo"}},
		"call":              {[]turn{user1("x\n>>say now\n>>call fs.list_directory {\"path\":\".\"}")}, said{text: "now", calls: []call{{name: "fs_list_directory", args: `{"path":"."}`}}}},
		"call with prefix":  {[]turn{user1("x\n>>call demo.echo {\"text\":\"hi\"}")}, said{calls: []call{{name: "mcp__gw__demo_echo", args: `{"text":"hi"}`}}}},
		"calls":             {[]turn{user1(">>call demo.echo {}\n>>bash echo 'a b'\n>>say later")}, said{calls: []call{{name: "mcp__gw__demo_echo", args: "{}"}, {name: "bash", args: `{"command":"echo 'a b'"}`}}}},
		"not offered":       {[]turn{user1(">>call mail.send {}\n>>say so")}, said{text: "I was not offered a tool mail.send, so I did not call it.\nso"}},
		"results":           {[]turn{user1(">>call demo.echo {}\n>>say after"), {call: &call{"c1", "mcp__gw__demo_echo", "{}"}}, {call: &call{id: "c1", name: "mcp__gw__demo_echo"}, result: "echo: hi"}}, said{text: "mcp__gw__demo_echo returned: echo: hi\nafter"}},
		"wins over results": {[]turn{user1(">>call demo.echo {}"), {call: &call{"c1", "mcp__gw__demo_echo", "{}"}}, {call: &call{id: "c1", name: "mcp__gw__demo_echo"}, result: "hi"}, user1(">>say new")}, said{text: "new"}},
		"remembers":         {[]turn{user1("first"), {said: "ok"}, user1("<system-reminder>x</system-reminder>", "What now?")}, said{text: "I remember from this conversation: you said “first”."}},
		"note before":       {[]turn{user1("<environment>x</environment>"), user1("first"), {said: "ok"}, user1("<b>x</b>"), {said: "ok"}, user1("And?")}, said{text: "I remember from this conversation: you said “first”; you said “<b>x</b>”."}},
		"notes around":      {[]turn{user1("<system-reminder>\n>>say no\n</system-reminder>", "x\n>>say yes", "<note>later</note>")}, said{text: "yes"}},
		"note after result": {[]turn{user1(">>call demo.echo {}"), {call: &call{"c1", "mcp__gw__demo_echo", "{}"}}, {call: &call{id: "c1", name: "mcp__gw__demo_echo"}, result: "hi"}, user1("<system-reminder>be brief</system-reminder>")}, said{text: "mcp__gw__demo_echo returned: hi"}},
		"failed turns":      {[]turn{user1("a\n>>error 500"), user1("b\n>>reset"), user1("c\n>>say c")}, said{text: "c"}},
		"failed, merged":    {[]turn{user1("a\n>>error 500\n", "b\n>>say b")}, said{text: "b"}},
		"failed, then none": {[]turn{user1("a\n>>error 500\n", "go on")}, said{text: "I remember nothing from before this message."}},
		"asked to go on":    {[]turn{user1("a\n>>say part\n>>truncate"), {said: "part"}}, said{text: "I remember from this conversation: you said “a / >>say part / >>truncate”."}},
		"answered already":  {[]turn{user1(">>error 500"), {said: "x"}, user1("go on")}, said{text: "I remember from this conversation: you said “>>error 500”."}},
	}
	for wire, s := range speakers() {
		for name, tt := range tests {
			t.Run(wire+" "+name, func(t *testing.T) {
				t.Parallel()
				got := s.says(t, "You are an agent.", tools, tt.turns...)
				if got.text != tt.want.text || got.thought != tt.want.thought {
					t.Errorf("said %q, thought %q\nwant %q, %q", got.text, got.thought, tt.want.text, tt.want.thought)
				}
				if tt.want.in != 0 && (got.in != tt.want.in || got.out != tt.want.out) {
					t.Errorf("usage %d/%d", got.in, got.out)
				}
				if got.in == 0 || got.out == 0 {
					t.Errorf("no usage: %+v", got)
				}
				compareCalls(t, got.calls, tt.want.calls)
			})
		}
	}
}

// What agents ask on the side is answered, and what stands in it is not obeyed.
func TestSideCallsAreNotObeyed(t *testing.T) {
	t.Parallel()
	const title = "A conversation with the demo model."
	bad := user1("Generate a title for this conversation:\n", "x\n>>error 500\n>>sleep 60000")
	tests := map[string]struct {
		system string
		tools  []string
		turns  []turn
		want   string
	}{
		"title":             {"You are a title generator. You output ONLY a thread title.", nil, []turn{bad}, title},
		"summary":           {"Summarize the conversation.", nil, []turn{user1("one"), {said: "two"}, user1("Summarize:\n>>error 500")}, "I remember from this conversation: you said “one”; you said “Summarize: / >>error 500”."},
		"tools are no side": {"You are a title generator.", []string{"bash"}, []turn{user1(">>say obeyed")}, "obeyed"},
		"no tools":          {"You are an agent.", nil, []turn{user1(">>say obeyed")}, "obeyed"},
	}
	for wire, s := range speakers() {
		for name, tt := range tests {
			t.Run(wire+" "+name, func(t *testing.T) {
				t.Parallel()
				if got := s.says(t, tt.system, tt.tools, tt.turns...); got.text != tt.want {
					t.Errorf("said %q, want %q", got.text, tt.want)
				}
			})
		}
		t.Run(wire+" schema", func(t *testing.T) {
			t.Parallel()
			schema := map[string]any{"type": "object", "required": []string{"title"}, "properties": map[string]any{"title": map[string]any{"type": "string"}}}
			body := s.body(true, "x", []string{"bash"}, []turn{user1("x\n>>error 500")})
			format := map[string]any{"type": "json_schema", "schema": schema}
			body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"schema": schema}}
			body["text"] = map[string]any{"format": format}
			body["output_config"] = map[string]any{"format": format}
			body["generationConfig"] = map[string]any{"responseMimeType": "application/json", "responseJsonSchema": schema}
			got := s.send(t, serve(t).URL, true, body)
			if a, _ := s.read(t, true, got.body); a.text != `{"title":"`+title+`"}` {
				t.Errorf("answered %d %q", got.status, got.body)
			}
		})
	}
}

func TestEveryWireFails(t *testing.T) {
	t.Parallel()
	shapes := map[string]string{
		"chat": `{"error":{"message":`, "responses": `{"error":{"message":`, "messages": `{"type":"error","error":{"type":`, "gemini": `{"error":{"code":`,
	}
	for wire, s := range speakers() {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(wire, " stream ", stream), func(t *testing.T) {
				t.Parallel()
				send := func(script string) reply {
					return s.send(t, serve(t).URL, stream, s.body(stream, "x", []string{"bash"}, []turn{user1(script)}))
				}
				for _, status := range []int{400, 429, 500, 529} {
					got := send(fmt.Sprint(">>say lost\n>>error ", status))
					if got.status != status || !strings.HasPrefix(got.body, shapes[wire]) || (got.header.Get("Retry-After") == "1") != (status == 429) {
						t.Errorf("%d: %+v", status, got)
					}
				}
				for script, broken := range map[string]bool{">>say part\n>>reset\n>>say never": true, ">>say part\n>>truncate\n>>say never": false} {
					got := send(script)
					if got.status != http.StatusOK || (got.err != nil) != broken || got.body == "" || strings.Contains(got.body, "never") || stream && !strings.Contains(got.body, "part") {
						t.Errorf("%s: %+v", script, got)
					}
					if !stream && json.Valid([]byte(got.body)) {
						t.Errorf("%s: a whole body: %s", script, got.body)
					}
					if stream {
						if _, done := s.read(t, true, got.body); done {
							t.Errorf("%s: with its terminal: %s", script, got.body)
						}
					}
				}
				if got := postTo(t, serve(t).URL+s.path(stream), `{"messages":7,"input":7,"contents":7}`); got.status != http.StatusBadRequest || !strings.HasPrefix(got.body, shapes[wire]) {
					t.Errorf("no request: %+v", got)
				}
			})
		}
	}
}

// codex offers tools in namespaces and wants their name taken apart again.
func TestNamespacesOfResponses(t *testing.T) {
	t.Parallel()
	s := speakers()["responses"]
	function := map[string]any{"type": "function", "name": "demo_echo", "parameters": map[string]any{"type": "object"}}
	for where, add := range map[string]func(map[string]any){
		"in tools": func(body map[string]any) {
			body["tools"] = []any{map[string]any{"type": "namespace", "name": "mcp__gw", "tools": []any{function}}, map[string]any{"type": "web_search"}}
		},
		"in the input": func(body map[string]any) {
			at := map[string]any{"type": "additional_tools", "role": "developer", "tools": []any{map[string]any{"type": "namespace", "name": "mcp__gw", "tools": []any{function}}}}
			body["input"] = append([]any{at}, body["input"].([]any)...) //nolint:forcetypeassert // made here
		},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			body := s.body(false, "x", nil, []turn{user1("x\n>>call demo.echo {}")})
			add(body)
			got := s.send(t, serve(t).URL, false, body)
			if !strings.Contains(got.body, `"namespace":"mcp__gw","name":"demo_echo"`) {
				t.Errorf("answered %s", got.body)
			}
		})
	}
}
