package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What a sandbox may not ask an endpoint for, on each wire, and whether an alias
// that drops what is unknown takes it out ("drop") or refuses it too.
func TestEveryWireRefusesWhatActs(t *testing.T) {
	t.Parallel()
	responses := func(f string) string { return `{"model":"main","stream":true,"input":"hi",` + f + `}` }
	input := func(item string) string { return `{"model":"main","stream":true,"input":[` + item + `]}` }
	messages := func(f string) string {
		return `{"model":"main","stream":true,"messages":[{"role":"user","content":"hi"}],` + f + `}`
	}
	block := func(b string) string {
		return `{"model":"main","stream":true,"messages":[{"role":"user","content":[` + b + `]}]}`
	}
	contents := func(f string) string { return `{"contents":[{"parts":[{"text":"hi"}]}],` + f + `}` }
	part := func(p string) string { return `{"contents":[{"parts":[` + p + `]}]}` }
	tests := map[string]struct {
		wire, body string
		drop       bool
	}{
		"responses, unknown field":       {"responses", responses(`"search":{}`), true},
		"responses, background":          {"responses", responses(`"background":true`), true},
		"responses, web search":          {"responses", responses(`"tools":[{"type":"web_search"}]`), true},
		"responses, tool server":         {"responses", responses(`"tools":[{"type":"mcp","server_url":"https://x.example"},{"type":"function","name":"f"}]`), true},
		"responses, in a namespace":      {"responses", responses(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"code_interpreter"}]}]`), true},
		"responses, in the input":        {"responses", input(`{"type":"additional_tools","tools":[{"type":"web_search"}]},{"role":"user","content":"hi"}`), true},
		"responses, stored":              {"responses", responses(`"store":true`), true},
		"responses, previous":            {"responses", responses(`"previous_response_id":"resp_1"`), false},
		"responses, conversation":        {"responses", responses(`"conversation":"conv_1"`), false},
		"responses, stored prompt":       {"responses", responses(`"prompt":{"id":"p"}`), false},
		"responses, reference":           {"responses", input(`{"type":"item_reference","id":"x"}`), false},
		"responses, file elsewhere":      {"responses", input(`{"role":"user","content":[{"type":"input_file","file_url":"https://x.example/?d"}]}`), false},
		"responses, stored file":         {"responses", input(`{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}`), false},
		"responses, image elsewhere":     {"responses", input(`{"role":"user","content":[{"type":"input_image","image_url":"https://x.example/?d"}]}`), false},
		"responses, image in a result":   {"responses", input(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"https://x.example/?d"}]}`), false},
		"responses, type in other case":  {"responses", input(`{"type":"message","Type":"item_reference","role":"user","content":"x"}`), false},
		"responses, no input":            {"responses", `{"model":"main"}`, false},
		"responses, empty input":         {"responses", `{"model":"main","input":[]}`, false},
		"responses, input of texts":      {"responses", `{"model":"main","input":["x"]}`, false},
		"responses, no model":            {"responses", `{"input":"x"}`, false},
		"messages, unknown field":        {"messages", messages(`"search":{}`), true},
		"messages, tool servers":         {"messages", messages(`"mcp_servers":[{"url":"https://x.example"}]`), true},
		"messages, web fetch":            {"messages", messages(`"tools":[{"type":"web_fetch_20250910","name":"web_fetch"},{"name":"Bash"}]`), true},
		"messages, code execution":       {"messages", messages(`"tools":[{"type":"code_execution_20250825","name":"x"}]`), true},
		"messages, tool in other case":   {"messages", messages(`"tools":[{"type":"mcp_toolset","Type":"custom"}]`), true},
		"messages, only other case":      {"messages", messages(`"tools":[{"Type":"mcp_toolset"},{"name":"f"}]`), true},
		"responses, tool in other case":  {"responses", responses(`"tools":[{"type":"function","Type":"mcp"}]`), true},
		"messages, container":            {"messages", messages(`"container":"c"`), false},
		"messages, image elsewhere":      {"messages", block(`{"type":"image","source":{"type":"url","url":"https://x.example/?d"}}`), false},
		"messages, stored file":          {"messages", block(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`), false},
		"messages, in a result":          {"messages", block(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://x.example/?d"}}]}`), false},
		"messages, in other case":        {"messages", block(`{"type":"text","text":"x","Source":{"type":"url","URL":"https://x.example"}}`), false},
		"messages, type in other case":   {"messages", block(`{"type":"text","text":"x","Type":"server_tool_use"}`), false},
		"messages, container upload":     {"messages", block(`{"type":"container_upload","file_id":"f"}`), false},
		"messages, content twice":        {"messages", `{"model":"main","messages":[{"role":"user","content":"x","Content":[{"type":"image"}]}]}`, false},
		"messages, in the system":        {"messages", messages(`"system":[{"type":"image","source":{"type":"url","url":"https://x.example"}}]`), false},
		"messages, block of the server":  {"messages", block(`{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"text","text":"x"}`), true},
		"messages, none":                 {"messages", `{"model":"main","messages":[]}`, false},
		"gemini, unknown field":          {"gemini", contents(`"search":{}`), true},
		"gemini, search":                 {"gemini", contents(`"tools":[{"googleSearch":{}}]`), true},
		"gemini, search beside":          {"gemini", contents(`"tools":[{"functionDeclarations":[],"urlContext":{}},{"functionDeclarations":[]}]`), true},
		"gemini, code":                   {"gemini", contents(`"tools":[{"code_execution":{}}]`), true},
		"gemini, cached":                 {"gemini", contents(`"cachedContent":"cachedContents/1"`), false},
		"gemini, cached, other spelling": {"gemini", contents(`"cached_content":"cachedContents/1"`), false},
		"gemini, file elsewhere":         {"gemini", part(`{"fileData":{"fileUri":"https://x.example/?d"}}`), false},
		"gemini, other spelling":         {"gemini", part(`{"file_data":{"file_uri":"gs://x"}}`), false},
		"gemini, in a result":            {"gemini", part(`{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"gs://x"}}]}}`), false},
		"gemini, in the system":          {"gemini", contents(`"systemInstruction":{"parts":[{"fileData":{"fileUri":"gs://x"}}]}`), false},
		"gemini, none":                   {"gemini", `{"contents":[]}`, false},
	}
	for name, tt := range tests {
		for _, drop := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", dropping"}[drop], func(t *testing.T) {
				t.Parallel()
				g := tongues()[tt.wire]
				o := g.options()
				o.drop = drop
				sent := make(chan string, 1)
				r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
					data, _ := io.ReadAll(req.Body)
					sent <- string(data)
					g.wholly()(w, req)
				}, o)
				got := r.postTo(t.Context(), t, g.path, tt.body)
				if !drop || !tt.drop {
					g.told(t, r, got, http.StatusBadRequest, "invalid_request")
					if len(sent) > 0 {
						t.Errorf("sent on: %s", <-sent)
					}
					return
				}
				if got.status != http.StatusOK {
					t.Fatalf("got %+v", got)
				}
				data := <-sent
				for _, gone := range []string{"search\"", "web_", "mcp", "code_", "background", "urlContext", `"store":true`, "x.example", "googleSearch"} {
					if strings.Contains(data, gone) && !strings.Contains(name, "block of the server") {
						t.Errorf("%s went on: %s", gone, data)
					}
				}
			})
		}
	}
}

// What only shapes an answer passes unchanged, but for the model and what an
// endpoint would keep.
func TestEveryWirePassesTheHarmless(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ wire, body, want string }{
		"responses": {
			"responses",
			`{"model":"main","stream":true,"instructions":"<a> & b","input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,AA=="},{"type":"input_file","file_data":"data:,x","filename":"x"}]},{"type":"reasoning","id":"r","summary":[],"encrypted_content":"e"},{"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{\"url\":\"https://x.example\"}"},{"type":"function_call_output","call_id":"c","output":"https://x.example"}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{"properties":{"url":{}}}}]},{"type":"custom","name":"g"}],"store":false,"include":["reasoning.encrypted_content"],"text":{"format":{"type":"text"}},"previous_response_id":null,"client_metadata":{"a":"b"}}`,
			`{"model":"large-1","stream":true,"instructions":"<a> & b","input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,AA=="},{"type":"input_file","file_data":"data:,x","filename":"x"}]},{"type":"reasoning","id":"r","summary":[],"encrypted_content":"e"},{"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{\"url\":\"https://x.example\"}"},{"type":"function_call_output","call_id":"c","output":"https://x.example"}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{"properties":{"url":{}}}}]},{"type":"custom","name":"g"}],"store":false,"include":["reasoning.encrypted_content"],"text":{"format":{"type":"text"}}}`,
		},
		"responses, not stored by default": {"responses", `{"model":"main","stream":true,"input":"hi"}`, `{"model":"large-1","stream":true,"input":"hi","store":false}`},
		"messages": {
			"messages",
			`{"model":"main","stream":true,"max_tokens":12345678901234567890,"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{"url":"https://x.example","file_id":"f"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"https://x.example"}]},{"role":"system","content":"x"}],"tools":[{"name":"f","input_schema":{"properties":{"url":{}}}},{"type":"bash_20250124","name":"bash"}],"thinking":{"type":"adaptive"},"metadata":{"user_id":"u"}}`,
			`{"model":"large-1","stream":true,"max_tokens":12345678901234567890,"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{"url":"https://x.example","file_id":"f"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"https://x.example"}]},{"role":"system","content":"x"}],"tools":[{"name":"f","input_schema":{"properties":{"url":{}}}},{"type":"bash_20250124","name":"bash"}],"thinking":{"type":"adaptive"}}`,
		},
		"gemini": {
			"gemini",
			`{"contents":[{"role":"user","parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"url":"https://x.example"}},"thoughtSignature":"s"}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"uri":"https://x.example"}}}]}],"systemInstruction":{"parts":[{"text":"s"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"temperature":1e-7},"labels":{"a":"b"}}`,
			`{"contents":[{"role":"user","parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"url":"https://x.example"}},"thoughtSignature":"s"}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"uri":"https://x.example"}}}]}],"systemInstruction":{"parts":[{"text":"s"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"temperature":1e-7}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := tongues()[tt.wire]
			sent := make(chan string, 1)
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				data, _ := io.ReadAll(req.Body)
				sent <- string(data)
				g.wholly()(w, req)
			}, g.options())
			if got := r.postTo(t.Context(), t, g.path, tt.body); got.status != http.StatusOK {
				t.Fatalf("got %+v", got)
			}
			if data := <-sent; normal(t, data) != normal(t, tt.want) {
				t.Errorf("the upstream got %s\nwant %s", data, tt.want)
			}
		})
	}
}
