package loopback

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

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
