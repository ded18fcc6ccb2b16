package demomodel_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/pkg/demomodel"
)

// said is what a client makes of an answer, streamed or whole.
type said struct {
	id      string
	text    string
	thought string
	calls   []call
	finish  string
	in, out int
	usages  int
	chunks  int
	done    bool
}

type call struct {
	id, name, args string
}

type msg map[string]any

func user(text string) msg { return msg{"role": "user", "content": text} }

func result(id, text string) msg {
	return msg{"role": "tool", "tool_call_id": id, "content": text}
}

func called(c call) msg {
	return msg{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
		"id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.args},
	}}}
}

// body is a request that offers two tools.
func body(t *testing.T, stream bool, messages ...msg) string {
	t.Helper()
	tool := func(name string) map[string]any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "parameters": map[string]any{"type": "object"}}}
	}
	data, err := json.Marshal(map[string]any{
		"model":          "demo",
		"messages":       messages,
		"stream":         stream,
		"stream_options": map[string]any{"include_usage": true},
		"tools":          []any{tool("fs_read_text_file"), tool("fs_list_directory")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(demomodel.New())
	t.Cleanup(srv.Close)
	return srv
}

// reply is an answer as it came; err is how its body ended.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func post(t *testing.T, url, body string) reply {
	t.Helper()
	return postTo(t, url+demomodel.Path, body)
}

func postTo(t *testing.T, url, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	// No connection outlives a test.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(data), err: err}
}

// ask sends messages both ways and demands the same answer twice.
func ask(t *testing.T, messages ...msg) said {
	t.Helper()
	srv := serve(t)
	streamed := askOnce(t, srv.URL, true, messages)
	if again := askOnce(t, srv.URL, true, messages); !same(streamed, again) {
		t.Errorf("the same request got %+v, then %+v", streamed, again)
	}
	whole := askOnce(t, srv.URL, false, messages)
	if !same(streamed, whole) {
		t.Errorf("streamed %+v, whole %+v", streamed, whole)
	}
	if !streamed.done || streamed.usages != 1 {
		t.Errorf("stream: [DONE] %v, %d usage chunks", streamed.done, streamed.usages)
	}
	return streamed
}

func same(a, b said) bool {
	if len(a.calls) != len(b.calls) {
		return false
	}
	for i := range a.calls {
		if a.calls[i] != b.calls[i] {
			return false
		}
	}
	return a.id == b.id && a.text == b.text && a.thought == b.thought && a.finish == b.finish && a.in == b.in && a.out == b.out
}

func askOnce(t *testing.T, url string, stream bool, messages []msg) said {
	t.Helper()
	got := post(t, url, body(t, stream, messages...))
	if got.err != nil || got.status != http.StatusOK {
		t.Fatalf("answer: %+v", got)
	}
	if stream {
		return readStream(t, got.body)
	}
	return readWhole(t, []byte(got.body))
}

type wireMessage struct {
	Content   *string `json:"content"`
	Reasoning string  `json:"reasoning_content"`
	ToolCalls []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type wireAnswer struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Choices []struct {
		Delta   wireMessage `json:"delta"`
		Message wireMessage `json:"message"`
		Finish  *string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		In    int `json:"prompt_tokens"`
		Out   int `json:"completion_tokens"`
		Total int `json:"total_tokens"`
	} `json:"usage"`
}

func (s *said) add(t *testing.T, a wireAnswer, m wireMessage, streamed bool) {
	t.Helper()
	if m.Content != nil {
		s.text += *m.Content
	}
	s.thought += m.Reasoning
	for i, c := range m.ToolCalls {
		if !streamed {
			c.Index = i
		}
		switch {
		case c.ID != "" && c.Index == len(s.calls) && c.Type == "function":
			s.calls = append(s.calls, call{id: c.ID, name: c.Function.Name, args: c.Function.Arguments})
		case c.ID == "" && c.Index < len(s.calls):
			s.calls[c.Index].args += c.Function.Arguments
		default:
			t.Errorf("tool call piece out of order: %+v", c)
		}
	}
	if f := a.Choices[0].Finish; f != nil {
		s.finish = *f
	}
}

func (s *said) count(t *testing.T, a wireAnswer) {
	t.Helper()
	if a.Usage == nil {
		return
	}
	s.usages++
	s.in, s.out = a.Usage.In, a.Usage.Out
	if a.Usage.Total != s.in+s.out {
		t.Errorf("total %d is not %d + %d", a.Usage.Total, s.in, s.out)
	}
}

func readWhole(t *testing.T, data []byte) said {
	t.Helper()
	var a wireAnswer
	if err := json.Unmarshal(data, &a); err != nil || a.Object != "chat.completion" || len(a.Choices) != 1 {
		t.Fatalf("not a completion: %v, %s", err, data)
	}
	s := said{id: a.ID}
	s.add(t, a, a.Choices[0].Message, false)
	s.count(t, a)
	return s
}

func readStream(t *testing.T, stream string) said {
	t.Helper()
	var s said
	lines := bufio.NewScanner(strings.NewReader(stream))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			s.done = true
			continue
		}
		var a wireAnswer
		if err := json.Unmarshal([]byte(data), &a); err != nil || a.Object != "chat.completion.chunk" || s.done {
			t.Fatalf("not a chunk: %v, %s", err, data)
		}
		s.id = a.ID
		s.chunks++
		s.count(t, a)
		if len(a.Choices) == 1 {
			s.add(t, a, a.Choices[0].Delta, true)
		}
	}
	return s
}
