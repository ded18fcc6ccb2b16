package proxy_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// tongue is what a test has to know of a wire.
type tongue struct {
	kind  proxy.Kind
	wires []proxy.Wire
	// path and ask of a stream, and of a whole answer.
	path, pathWhole string
	ask, askWhole   string
	// upstream is where the request for a stream has to come out.
	upstream string
	// part and end of a stream: end[0] finishes the answer, the last is the
	// terminal. Names of events are not written.
	part  string
	end   []string
	whole string
	// named tells that events have names.
	named bool
	// key is how the key is sent.
	key [2]string
}

func tongues() map[string]tongue {
	return map[string]tongue{
		"chat": {
			kind: proxy.KindOpenAI, path: proxy.Path, pathWhole: proxy.Path, ask: ask, askWhole: askWhole, upstream: "/v1/chat/completions",
			part:  sayHello,
			end:   []string{sayStop, `{"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`, "[DONE]"},
			whole: `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`,
			key:   [2]string{"Authorization", "Bearer " + keyCanary},
		},
		"responses": {
			kind: proxy.KindOpenAI, wires: []proxy.Wire{proxy.OpenAIResponses}, path: "/v1/responses", pathWhole: "/v1/responses", named: true, upstream: "/v1/responses",
			ask: `{"model":"main","stream":true,"input":"hi"}`, askWhole: `{"model":"main","input":[{"role":"user","content":"hi"}]}`,
			part:  `{"type":"response.output_text.delta","sequence_number":1,"delta":"hello"}`,
			end:   []string{`{"type":"response.output_item.done","item":{}}`, `{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":4}}}`},
			whole: `{"id":"r","object":"response","status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":3,"output_tokens":4}}`,
			key:   [2]string{"Authorization", "Bearer " + keyCanary},
		},
		"messages": {
			kind: proxy.KindAnthropic, path: "/v1/messages?beta=true", pathWhole: "/v1/messages", named: true, upstream: "/v1/messages?beta=true",
			ask:      `{"model":"main","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
			askWhole: `{"model":"main","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			part:     `{"type":"message_start","message":{"id":"m","type":"message","usage":{"input_tokens":1,"cache_read_input_tokens":2,"output_tokens":1}}}`,
			end:      []string{`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}`, `{"type":"message_stop"}`},
			whole:    `{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}`,
			key:      [2]string{"X-Api-Key", keyCanary},
		},
		"gemini": {
			kind: proxy.KindGemini, path: "/v1beta/models/main:streamGenerateContent?alt=sse", pathWhole: "/v1beta/models/main:generateContent",
			upstream: "/v1beta/models/large-1:streamGenerateContent?alt=sse",
			ask:      `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, askWhole: `{"contents":[{"parts":[{"text":"hi"}]}]}`,
			part:  `{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"index":0}]}`,
			end:   []string{`{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":3,"thoughtsTokenCount":1}}`},
			whole: `{"candidates":[{"content":{"parts":[{"text":"hello"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}`,
			key:   [2]string{"X-Goog-Api-Key", keyCanary},
		},
	}
}

// options to be completed by a test.
func (g tongue) options() options {
	return options{kind: g.kind, wires: g.wires, model: "large-1"}
}

// stream is a whole stream as the caller has to get it.
func (g tongue) stream() string {
	var b strings.Builder
	for _, e := range append([]string{g.part}, g.end...) {
		b.WriteString(g.event(e))
	}
	return b.String()
}

func (g tongue) event(data string) string {
	var v struct {
		Type string `json:"type"`
	}
	if g.named && json.Unmarshal([]byte(data), &v) == nil {
		return "event: " + v.Type + "\ndata: " + data + "\n\n"
	}
	return "data: " + data + "\n\n"
}

// wholly makes an upstream that answers a stream or a whole.
func (g tongue) wholly() http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Accept") == "text/event-stream" {
			events(append([]string{g.part}, g.end...)...)(w, req)
			return
		}
		answerJSON(g.whole)(w, req)
	}
}

func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// told demands an error of the wire with a fault code in the header.
func (g tongue) told(t *testing.T, r *rig, got reply, status int, code string) {
	t.Helper()
	if got.err != nil || got.status != status || got.header.Get("Cofferdam-Fault") != code {
		t.Errorf("got %d %s %q (%v), want %d %s", got.status, got.header.Get("Cofferdam-Fault"), got.body, got.err, status, code)
	}
	var doc struct {
		Type  string `json:"type"`
		Error struct {
			Type    string          `json:"type"`
			Message string          `json:"message"`
			Code    json.RawMessage `json:"code"`
			Status  string          `json:"status"`
			Details []struct {
				Reason string `json:"reason"`
			} `json:"details"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || doc.Error.Message == "" {
		t.Errorf("body %q: %v", got.body, err)
	}
	e := doc.Error
	switch g.kind {
	case proxy.KindGemini:
		if string(e.Code) != strconv.Itoa(status) || e.Status == "" || len(e.Details) != 1 || e.Details[0].Reason != code {
			t.Errorf("body %q", got.body)
		}
	case proxy.KindAnthropic:
		if doc.Type != "error" || e.Type == "" || string(e.Code) != `"`+code+`"` {
			t.Errorf("body %q", got.body)
		}
	default:
		if e.Type == "" || string(e.Code) != `"`+code+`"` {
			t.Errorf("body %q", got.body)
		}
	}
	r.clean(t, got)
}
