package loopback

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

// What is read of an answer does not depend on how it comes in pieces, and no
// count is one that an event may not have.
func FuzzObserver(f *testing.F) {
	for i, seed := range []string{
		"data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n",
		"data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3}}}\r\n\r\n",
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"cache_read_input_tokens\":9007199254740991}}}\n",
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":1e2}}",
		`{"error":{"code":1}}`,
	} {
		f.Add(byte(i), i%2 == 0, []byte(seed), byte(i))
	}
	wires := []harness.Wire{harness.WireOpenAIChat, harness.WireOpenAIResponses, harness.WireAnthropicMessages, harness.WireGemini, ""}
	f.Fuzz(func(t *testing.T, w byte, stream bool, body []byte, step byte) {
		whole, pieces := newObserver(wires[int(w)%len(wires)], stream), newObserver(wires[int(w)%len(wires)], stream)
		whole.write(body)
		for rest := body; len(rest) > 0; {
			n := min(len(rest), int(step)%7+1)
			pieces.write(rest[:n])
			rest = rest[n:]
		}
		if whole.close() != pieces.close() || whole.failed() != pieces.failed() || whole.ended() != pieces.ended() {
			t.Fatal("pieces are read otherwise")
		}
		a, b := whole.usage(), pieces.usage()
		for _, n := range [][2]*uint64{{a.Input, b.Input}, {a.Output, b.Output}, {a.Cached, b.Cached}} {
			if (n[0] == nil) != (n[1] == nil) || n[0] != nil && (*n[0] != *n[1] || *n[0] > event.MaxInteger) {
				t.Fatalf("counts %v", n)
			}
		}
	})
}

// No path leads anywhere but to the routes of the four wires.
func FuzzRoute(f *testing.F) {
	f.Add("/v1/messages", "beta=true")
	f.Add("/v1beta/models/m:generateContent", "alt=sse&key=x")
	f.Add("/v1beta/models/../x:generateContent", "")
	f.Fuzz(func(t *testing.T, path, query string) {
		to, ok := routeOf(&http.Request{Method: http.MethodPost, URL: &url.URL{RawQuery: query}}, path)
		if !ok {
			return
		}
		if to.path != path || strings.Contains(path, "..:") || strings.Contains(path, "/../") || strings.ContainsAny(path, "%?# \r\n") {
			t.Fatalf("%q goes on", path)
		}
		if to.query != "" && to.query != "beta=true" && to.query != "alt=sse" {
			t.Fatalf("query %q goes on", to.query)
		}
	})
}

// FuzzArguments: what an agent calls a tool with may stand in an event, or is
// refused.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"a":1}`, ` { "a" : [1e400] }`, `null`, ``, `[]`, `{"a":1,"A":2}`, `{"a":"\ud83d"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, ok := object(raw)
		if !ok && args != event.EmptyObject {
			t.Fatalf("%q is refused and becomes %s", raw, args)
		}
		started := event.Draft{Data: event.ToolStarted{ToolCallID: "c", ToolName: "t.t", Arguments: args}}
		if err := event.Validate(started.Event("r", "c", 1, time.Unix(1, 0).UTC()), event.Bounds{}); err != nil {
			t.Fatalf("%q became %s: %v", raw, args, err)
		}
	})
}

// FuzzResult: whatever a broker's result is, the agent reads MCP.
func FuzzResult(f *testing.F) {
	for _, s := range []string{`{"content":[{"type":"text","text":"x"}]}`, `{"content":[{"type":"hologram"}]}`, `{"structuredContent":{}}`, `[1]`, `{`, "\xff"} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, failed bool) {
		res := resultOf(harness.ToolResult{Result: raw, IsError: failed})
		text, err := json.Marshal(res)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		var again mcp.CallToolResult
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%q became %s: %v", raw, text, err)
		}
		if again.IsError != failed || len(again.Content) == 0 && again.StructuredContent == nil {
			t.Fatalf("%q became %s", raw, text)
		}
	})
}

// FuzzBody: whatever a program sends as a request, in whatever encoding, what is read is
// bounded and is what was sent, and what is looked for in it is found or not.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"tools":[{"functionDeclarations":[{},{}]},{"type":"function"}]}`, `{"tools":{}}`, `{"tools":[null]}`, `{"error":{"code":"rate_limited"}}`, `{"error":{"code":7}}`, "", "\x1f\x8b", "\x28\xb5\x2f\xfd",
	} {
		f.Add([]byte(seed))
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = encoder.Close() })
	read := func(t *testing.T, encoding string, body []byte) ([]byte, error) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/messages", bytes.NewReader(body))
		r.Header.Set("Content-Encoding", encoding)
		return readBody(httptest.NewRecorder(), r)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(body); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		for encoding, sent := range map[string][]byte{"": body, "identity": body, "gzip": packed.Bytes(), "zstd": encoder.EncodeAll(body, nil)} {
			if got, err := read(t, encoding, sent); err != nil || !bytes.Equal(got, body) {
				t.Fatalf("as %q %q became %q: %v", encoding, body, got, err)
			}
			if encoding == "gzip" || encoding == "zstd" {
				got, err := read(t, encoding, body)
				if len(got) > MaxModelRequest || err != nil && got != nil {
					t.Fatalf("%q as %q: %d bytes, %v", body, encoding, len(got), err)
				}
			}
		}
		if _, err := read(t, "br", body); err == nil {
			t.Fatal("an encoding that is not known was taken")
		}
		if n := offered(body); n < 0 || n > len(body) {
			t.Fatalf("%q offers %d tools", body, n)
		}
		_ = codeIn(body)
	})
}
