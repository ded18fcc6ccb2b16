package loopback

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"cofferdam.dev/services/worker/internal/harness"
)

// route is a request that modelproxy passes on.
type route struct {
	wire harness.Wire
	// answers says that the model is asked for an answer, which counts as a call.
	answers bool
	// path and query for the proxy.
	path, query string
}

// geminiPath has the model's name in it, which the proxy replaces.
var geminiPath = regexp.MustCompile(`^/v1beta/models/[A-Za-z0-9][A-Za-z0-9._-]{0,127}:(streamGenerateContent|generateContent|countTokens)$`)

// routeOf finds the route of a request. Of its query only what a wire needs goes
// on: gemini's key is the program's secret.
func routeOf(r *http.Request, path string) (route, bool) {
	get := r.Method == http.MethodGet
	if !get && r.Method != http.MethodPost {
		return route{}, false
	}
	switch {
	case get:
		return route{path: path}, path == "/v1/models"
	case path == "/v1/chat/completions":
		return route{wire: harness.WireOpenAIChat, answers: true, path: path}, true
	case path == "/v1/responses":
		return route{wire: harness.WireOpenAIResponses, answers: true, path: path}, true
	case path == "/v1/messages":
		return route{wire: harness.WireAnthropicMessages, answers: true, path: path, query: only(r.URL, "beta", "true")}, true
	case path == "/v1/messages/count_tokens":
		return route{wire: harness.WireAnthropicMessages, path: path, query: only(r.URL, "beta", "true")}, true
	case geminiPath.MatchString(path):
		return route{wire: harness.WireGemini, answers: !strings.HasSuffix(path, ":countTokens"), path: path, query: only(r.URL, "alt", "sse")}, true
	default:
		return route{}, false
	}
}

// only keeps one value of one key of a query.
func only(u *url.URL, key, value string) string {
	if u.Query().Get(key) != value {
		return ""
	}
	return key + "=" + value
}
