package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

func message(content string) string {
	return `{"model":"main","messages":[{"role":"user","content":` + content + `}]}`
}

func field(f string) string {
	return `{"model":"main","messages":[{"role":"user","content":"hi"}],` + f + `}`
}

// What a sandbox may not ask an endpoint for, and what is no request at all:
// none of it may reach the upstream.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body   string
		status int
		code   string
	}{
		"no model":              {`{"messages":[{"role":"user","content":"hi"}]}`, 400, "invalid_request"},
		"model is no text":      {`{"model":["main"],"messages":[{"role":"user","content":"hi"}]}`, 400, "invalid_request"},
		"two models":            {field(`"model":"other"`), 400, "invalid_request"},
		"second model in case":  {field(`"Model":"other"`), 400, "invalid_request"},
		"two streams":           {field(`"stream":false,"stream":true`), 400, "invalid_request"},
		"nested doubled key":    {field(`"tools":[{"type":"function","type":"web_search"}]`), 400, "invalid_request"},
		"stream is no boolean":  {field(`"stream":"true"`), 400, "invalid_request"},
		"models to fall back":   {field(`"models":["other"]`), 400, "invalid_request"},
		"web search":            {field(`"web_search_options":{}`), 400, "invalid_request"},
		"plugins":               {field(`"plugins":[{"id":"web"}]`), 400, "invalid_request"},
		"stored":                {field(`"store":true`), 400, "invalid_request"},
		"field with odd name":   {field(`"a b":1`), 400, "invalid_request"},
		"tool of the endpoint":  {field(`"tools":[{"type":"web_search"}]`), 400, "invalid_request"},
		"tool server":           {field(`"tools":[{"type":"mcp","server_url":"https://x.example"}]`), 400, "invalid_request"},
		"tool with more":        {field(`"tools":[{"type":"function","Type":"web_search"}]`), 400, "invalid_request"},
		"tools no list":         {field(`"tools":{}`), 400, "invalid_request"},
		"no messages":           {`{"model":"main"}`, 400, "invalid_request"},
		"empty messages":        {`{"model":"main","messages":[]}`, 400, "invalid_request"},
		"image elsewhere":       {message(`[{"type":"image_url","image_url":{"url":"https://x.example/?data"}}]`), 400, "invalid_request"},
		"image as a text":       {message(`[{"type":"image_url","image_url":"https://x.example/?data"}]`), 400, "invalid_request"},
		"image in other case":   {message(`[{"type":"image_url","image_url":{"url":"https://x.example","URL":"data:,"}}]`), 400, "invalid_request"},
		"image key in case":     {message(`[{"type":"text","text":"x","Image_URL":{"url":"https://x.example"}}]`), 400, "invalid_request"},
		"image under a text":    {message(`[{"type":"text","text":"x","image_url":{"url":"https://x.example"}}]`), 400, "invalid_request"},
		"file elsewhere":        {message(`[{"type":"file","file":{"file_url":"https://x.example"}}]`), 400, "invalid_request"},
		"stored file":           {message(`[{"type":"file","file":{"file_id":"file-1"}}]`), 400, "invalid_request"},
		"unknown part":          {message(`[{"type":"video_url","video_url":{"url":"https://x.example"}}]`), 400, "invalid_request"},
		"part no object":        {message(`["x"]`), 400, "invalid_request"},
		"content in other case": {`{"model":"main","messages":[{"role":"user","Content":[{"type":"image_url"}]}]}`, 400, "invalid_request"},
		"not JSON":              {`{`, 400, "invalid_request"},
		"empty":                 {``, 400, "invalid_request"},
		"no object":             {`[]`, 400, "invalid_request"},
		"null":                  {`null`, 400, "invalid_request"},
		"two documents":         {askWhole + askWhole, 400, "invalid_request"},
		"not UTF-8":             {message("\"\xff\""), 400, "invalid_request"},
		"too deep":              {field(`"response_format":` + strings.Repeat("[", 200) + strings.Repeat("]", 200)), 400, "invalid_request"},
		"too large":             {message(`"` + strings.Repeat("x", 64<<10) + `"`), 413, "request_too_large"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, options{limits: proxy.Limits{MaxRequest: 32 << 10}})
			r.fails(t, r.post(t.Context(), t, tt.body), tt.status, tt.code)
		})
	}
}

func TestRefusedHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, options{})
	for _, header := range [][]string{
		{"Content-Type", "text/plain"}, {"Content-Type", "multipart/form-data; boundary=x"}, {"Content-Encoding", "gzip"},
	} {
		r.fails(t, r.post(t.Context(), t, ask, header...), http.StatusBadRequest, "invalid_request")
	}
}

func TestRefusedAliases(t *testing.T) {
	t.Parallel()
	unknown := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, options{alias: "elsewhere"})
	unknown.fails(t, unknown.post(t.Context(), t, ask), http.StatusNotFound, "not_found")
}

func TestHarmlessRequestsPassUnchanged(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"parts":         message(`[{"type":"text","text":"<a> & \u2028"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}},{"type":"file","file":{"file_data":"data:,x","filename":"x"}}]`),
		"null content":  `{"model":"main","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`,
		"tools":         field(`"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"A":{},"a":{}}}}}],"tool_choice":"auto"`),
		"not stored":    field(`"store":false`),
		"large numbers": field(`"seed":12345678901234567890,"temperature":1e-7`),
		"all that shapes": field(`"stream":false,"max_completion_tokens":5,"stop":["x"],"n":1,"reasoning_effort":"low","parallel_tool_calls":false,` +
			`"response_format":{"type":"json_object"},"top_p":1,"user":"u","logprobs":false,"verbosity":"low"`),
		"allowed by the alias": field(`"metadata":{"a":"b"}`),
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				data, _ := io.ReadAll(req.Body)
				got <- string(data)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, whole)
			}, options{fields: []string{"metadata"}})
			if answer := r.post(t.Context(), t, body); answer.status != http.StatusOK {
				t.Fatalf("got %+v", answer)
			}
			if sent := <-got; normal(t, sent) != normal(t, body) {
				t.Errorf("the upstream got %s\nwant %s", sent, body)
			}
		})
	}
}

// normal sorts keys and keeps every number as it was written.
func normal(t *testing.T, doc string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
