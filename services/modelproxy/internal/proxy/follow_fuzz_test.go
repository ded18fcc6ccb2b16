package proxy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// Whatever an endpoint answers, what goes on of it is JSON (or the one word that
// ends a chat), its name fits on a line, a failure is one of the endpoint, and
// counts are counts.
func FuzzFollow(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":-1}}` + "\n[DONE]",
		`{"type":"response.created","response":{"id":"r"}}` + "\n" + `{"type":"response.failed","response":{"error":{"code":"server_error"},"id":"\u0000"}}`,
		`{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":1e30}}}`,
		`{"type":"message_start","message":{"usage":{"input_tokens":1}}}` + "\n" + `{"type":"message_delta","delta":{"stop_reason":"x"}}` + "\n" + `{"type":"message_stop"}`,
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3}}`, `{"promptFeedback":{"blockReason":"x"}}`,
		`{"input_tokens":3}`, `{"error":null}`, `null`, "{\"type\":\"a\nb\"}", "\xff",
	} {
		f.Add(seed)
	}
	routes := []route{{wire: OpenAIChat}, {wire: OpenAIResponses}, {wire: AnthropicMessages}, {wire: AnthropicMessages, count: true}, {wire: Gemini}}
	check := func(t *testing.T, data []byte, err error) {
		t.Helper()
		if reason, ok := errors.AsType[reasonError](err); err != nil && (!ok || reason == "" || fault.CodeOf(err) != fault.ModelFailed) {
			t.Fatalf("failed with %v", err)
		}
		if err == nil && !json.Valid(data) && strings.TrimSpace(string(data)) != "[DONE]" {
			t.Fatalf("sends on %q", data)
		}
	}
	f.Fuzz(func(t *testing.T, stream string) {
		for _, to := range routes {
			events, whole := to.follower(), to.follower()
			for line := range strings.SplitSeq(stream, "\n") {
				s, err := events.event([]byte(line))
				check(t, s.data, err)
				if err != nil || s.last {
					break
				}
				if s.name != "" && !eventName.MatchString(s.name) {
					t.Fatalf("named %q", s.name)
				}
			}
			data, err := whole.whole([]byte(stream))
			check(t, data, err)
			for _, u := range []usage{events.usage(), whole.usage()} {
				if u.in < 0 || u.out < 0 || u.in > 3*maxTokens || u.out > 3*maxTokens {
					t.Fatalf("counts %+v", u)
				}
			}
		}
	})
}
