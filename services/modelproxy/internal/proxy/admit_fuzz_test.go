package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// lax is a request as a decoder reads it that does not mind the case of keys.
type lax struct {
	Model    string
	Stream   bool
	Store    *bool
	Tools    []laxTool
	Messages []struct{ Content any }
	Contents []struct{ Parts any }
	Input    any
}

type laxTool struct {
	Type  string
	Tools []laxTool
}

// fuzzAdmit lets a wire take whatever comes, with and without dropping. What is
// let through names the upstream's model and no address, offers no tool of the
// endpoint, and is read alike by a lax decoder.
func fuzzAdmit(f *testing.F, path string, check func(t *testing.T, sent lax)) {
	for _, seed := range []string{
		`{"model":"main","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"main","messages":[{"content":[{"type":"image_url","image_url":{"url":"data:,"}}]}],"tools":[{"type":"function"}]}`,
		`{"model":"main","messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x","URL":"data:"}}]}]}`,
		`{"model":"main","messages":[{"content":[{"type":"file","file":{"file_data":"https://x"}},{"type":"input_audio","input_audio":{"data":"//x"}}]}]}`,
		`{"model":"main","Model":"x","messages":[{}]}`, `{"mod\u0065l":"main","messages":[null]}`, `null`, `[`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}],"tools":[{"type":"web_fetch_20250910"},{"name":"Bash"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_use","input":{"url":"https://x"}},{"Type":"image","type":"text","Source":{"URL":"https://x"}}]}]}`,
		`{"model":"m","input":[{"type":"item_reference","id":"x"},{"role":"user","content":[{"type":"input_file","file_url":"https://x"}]}],"store":true}`,
		`{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}],"tools":[{"type":"web_search"}]}`,
		`{"contents":[{"parts":[{"fileData":{"fileUri":"https://x"}},{"functionCall":{"args":{"url":"https://x"}}}]}],"tools":[{"googleSearch":{}},{"functionDeclarations":[]}]}`,
		`{"contents":[{"parts":[{"text":"x"}]}],"system_instruction":{"parts":[{"file_data":{"file_uri":"gs://x"}}]},"cachedContent":"c"}`,
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, body string, drop bool) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		to, ok := routeOf(r)
		if !ok {
			t.Fatal("no route")
		}
		req, err := readRequest(httptest.NewRecorder(), r, to, Limits{}.withDefaults())
		if err == nil {
			err = req.admit(admission{drop: drop})
		}
		if err != nil {
			if c := fault.CodeOf(err); c != fault.InvalidRequest && c != fault.RequestTooLarge {
				t.Fatalf("refused with %s: %v", c, err)
			}
			return
		}
		out, err := req.encode("upstream")
		if err != nil {
			t.Fatal(err)
		}
		var sent lax
		if err := json.Unmarshal(out, &sent); err != nil {
			t.Fatalf("sent on: %s: %v", out, err)
		}
		if to.wire != Gemini && (sent.Model != "upstream" || sent.Stream != req.stream) || sent.Store != nil && *sent.Store {
			t.Fatalf("read as model %q, stream %v: %s", sent.Model, sent.Stream, out)
		}
		check(t, sent)
	})
}

func FuzzAdmitChat(f *testing.F) {
	fuzzAdmit(f, Path, func(t *testing.T, sent lax) {
		t.Helper()
		for _, tool := range sent.Tools {
			if tool.Type != "function" && tool.Type != "custom" {
				t.Fatalf("sent on: %+v", tool)
			}
		}
		for _, m := range sent.Messages {
			parts, _ := m.Content.([]any)
			for _, p := range parts {
				noAddress(t, p, "image_url")
			}
		}
	})
}

func FuzzAdmitResponses(f *testing.F) {
	fuzzAdmit(f, pathResponses, func(t *testing.T, sent lax) {
		t.Helper()
		if sent.Store == nil {
			t.Fatal("the endpoint would keep the conversation")
		}
		onlyOwn(t, sent.Tools)
		items, _ := sent.Input.([]any)
		for _, i := range items {
			item, _ := i.(map[string]any)
			for key, value := range item {
				if strings.EqualFold(key, "type") && value == "item_reference" {
					t.Fatalf("names a stored item: %v", item)
				}
				if !strings.EqualFold(key, "tools") {
					noAddress(t, value, "image_url", "file_url", "file_id")
				}
			}
		}
	})
}

func onlyOwn(t *testing.T, tools []laxTool) {
	t.Helper()
	for _, tool := range tools {
		switch tool.Type {
		case "function", "custom", "local_shell":
		case "namespace":
			onlyOwn(t, tool.Tools)
		default:
			t.Fatalf("sent on: %+v", tool)
		}
	}
}

func FuzzAdmitMessages(f *testing.F) {
	fuzzAdmit(f, pathMessages, func(t *testing.T, sent lax) {
		t.Helper()
		for _, tool := range sent.Tools {
			if strings.HasPrefix(tool.Type, "web_") || strings.HasPrefix(tool.Type, "code_") || strings.HasPrefix(tool.Type, "mcp") {
				t.Fatalf("sent on: %+v", tool)
			}
		}
		for _, m := range sent.Messages {
			blocks, _ := m.Content.([]any)
			for _, b := range blocks {
				if block, _ := b.(map[string]any); block["type"] != "tool_use" {
					noAddress(t, b, "url", "file_id")
				}
			}
		}
	})
}

func FuzzAdmitGemini(f *testing.F) {
	fuzzAdmit(f, pathGemini+"m:generateContent", func(t *testing.T, sent lax) {
		t.Helper()
		for _, c := range sent.Contents {
			parts, _ := c.Parts.([]any)
			for _, p := range parts {
				part, _ := p.(map[string]any)
				for key, value := range part {
					if k := strings.ReplaceAll(strings.ToLower(key), "_", ""); k == "filedata" {
						noAddress(t, value, "fileUri", "file_uri")
					}
				}
			}
		}
	})
}

// noAddress demands that nothing but data stands under the keys, however they
// are written, and however deep; what calls carry and tools returned is theirs.
func noAddress(t *testing.T, v any, keys ...string) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			noAddress(t, one, keys...)
		}
	case map[string]any:
		for key, value := range v {
			if v["type"] == "tool_use" && key == "input" {
				continue
			}
			for _, address := range keys {
				text, isText := value.(string)
				if strings.EqualFold(key, address) && isText && text != "" && !strings.HasPrefix(text, "data:") {
					t.Fatalf("an address was let through: %v", fmt.Sprint(v))
				}
			}
			if text, _ := value.(string); strings.EqualFold(strings.ReplaceAll(key, "_", ""), "filedata") && strings.ContainsAny(text, ".:") && !strings.HasPrefix(text, "data:") {
				t.Fatalf("bytes that are none were let through: %v", fmt.Sprint(v))
			}
			noAddress(t, value, append(keys, "url")...)
		}
	}
}
