package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Wire is a protocol that models are spoken to in.
type Wire string

// The wires that are passed on.
const (
	OpenAIChat        Wire = "openai_chat"
	OpenAIResponses   Wire = "openai_responses"
	AnthropicMessages Wire = "anthropic_messages"
	Gemini            Wire = "gemini"
	// OpenAIEmbeddings is for services alone: its caller names the alias, which has
	// to list this wire.
	OpenAIEmbeddings Wire = "openai_embeddings"
)

func wires() []Wire {
	return []Wire{OpenAIChat, OpenAIResponses, AnthropicMessages, Gemini, OpenAIEmbeddings}
}

// The routes. A route of Gemini ends in a model's name and ":generateContent" or
// ":streamGenerateContent".
const (
	// Path is the route of OpenAI Chat Completions.
	Path            = "/v1/chat/completions"
	pathResponses   = "/v1/responses"
	pathMessages    = "/v1/messages"
	pathCountTokens = "/v1/messages/count_tokens" //nolint:gosec // a route, no credential
	pathGemini      = "/v1beta/models/"
	pathModels      = "/v1/models"
	// PathEmbeddings is the route of OpenAI Embeddings.
	PathEmbeddings = "/v1/embeddings"
)

// Patterns are the routes that a Proxy serves to sandboxes, in the form of
// [http.ServeMux]. [PathEmbeddings] is none of them.
func Patterns() []string {
	return []string{
		"POST " + Path, "POST " + pathResponses, "POST " + pathMessages, "POST " + pathCountTokens,
		"POST " + pathGemini + "{call}", "GET " + pathModels,
	}
}

// route is what a request asks for by its path.
type route struct {
	wire Wire
	// count asks only how many tokens a request has.
	count bool
	// list asks which models there are.
	list bool
	// model and stream stand in the path, on the wire of Gemini alone.
	model  string
	stream bool
}

// routeOf reads method and path; ok is false where there is no such route.
func routeOf(r *http.Request) (to route, ok bool) {
	if r.URL.Path == pathModels {
		return route{wire: OpenAIChat, list: true}, r.Method == http.MethodGet
	}
	if r.Method != http.MethodPost {
		return route{wire: OpenAIChat}, false
	}
	switch r.URL.Path {
	case Path:
		return route{wire: OpenAIChat}, true
	case pathResponses:
		return route{wire: OpenAIResponses}, true
	case pathMessages:
		return route{wire: AnthropicMessages}, true
	case PathEmbeddings:
		return route{wire: OpenAIEmbeddings}, true
	case pathCountTokens:
		return route{wire: AnthropicMessages, count: true}, true
	}
	call, found := strings.CutPrefix(r.URL.Path, pathGemini)
	model, action, asks := strings.Cut(call, ":")
	if !found || !asks || model == "" || strings.Contains(call, "/") {
		return route{wire: OpenAIChat}, false
	}
	to = route{wire: Gemini, model: model, stream: action == actionStream}
	return to, to.stream || action == actionWhole
}

const (
	actionWhole  = "generateContent"
	actionStream = "streamGenerateContent"
)

// address is where a request goes at an endpoint whose base is given.
func (to route) address(base *url.URL, model string) string {
	switch {
	case to.wire == OpenAIResponses:
		return base.JoinPath("responses").String()
	case to.wire == OpenAIEmbeddings:
		return base.JoinPath("embeddings").String()
	case to.count:
		return base.JoinPath("messages", "count_tokens").String()
	case to.wire == AnthropicMessages:
		return base.JoinPath("messages").String()
	case to.wire == Gemini && to.stream:
		return base.JoinPath("models", url.PathEscape(model)+":"+actionStream).String() + "?alt=sse"
	case to.wire == Gemini:
		return base.JoinPath("models", url.PathEscape(model)+":"+actionWhole).String()
	default:
		return base.JoinPath("chat", "completions").String()
	}
}

// kind is what a call is counted as.
func (to route) kind(side bool) string {
	switch {
	case to.count:
		return "count"
	case to.wire == OpenAIEmbeddings:
		return "embedding"
	case side:
		return "side"
	default:
		return "main"
	}
}

// query checks what a route takes behind its path and gives what goes on of it.
// Whatever else stands there stays here.
func (to route) query(q url.Values) (string, error) {
	switch {
	case to.wire == Gemini && to.stream && q.Get("alt") != "sse":
		return "", invalid("alt: sse")
	case to.wire == AnthropicMessages && slices.Equal(q["beta"], []string{"true"}):
		return "?beta=true", nil
	default:
		return "", nil
	}
}
