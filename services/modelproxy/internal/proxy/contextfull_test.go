package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// A request that does not fit the model's context can be mended by whoever made
// it, and so is told from one that is wrong. Nothing of the words gets out.
func TestContextFull(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   fault.Code
	}{
		"openai":          {400, `{"error":{"message":"secret words","code":"context_length_exceeded"}}`, fault.RequestTooLarge},
		"anthropic":       {400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8"}}`, fault.RequestTooLarge},
		"gemini":          {400, `{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}`, fault.RequestTooLarge},
		"compatible":      {400, `{"object":"error","message":"This model's maximum context length is 8 tokens."}`, fault.RequestTooLarge},
		"another 400":     {400, `{"error":{"message":"bad schema"}}`, fault.ModelFailed},
		"another status":  {401, `{"error":{"code":"context_length_exceeded"}}`, fault.ModelFailed},
		"far behind":      {400, strings.Repeat(" ", maxErrorBody) + "context_length_exceeded", fault.ModelFailed},
		"nothing":         {400, "", fault.ModelFailed},
		"a broken answer": {400, "\x00broken", fault.ModelFailed},
	} {
		var body io.Reader = strings.NewReader(tt.body)
		if name == "a broken answer" {
			body = io.MultiReader(body, broken{})
		}
		err := checkAnswer(&http.Response{StatusCode: tt.status, Body: io.NopCloser(body), Header: http.Header{}}, true)
		if fault.CodeOf(err) != tt.want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }
