package mcpcall

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"cofferdam.dev/services/toolbroker/internal/elicit"
)

const (
	methodElicit   = "elicitation/create"
	methodPing     = "ping"
	methodProgress = "notifications/progress"
)

// Input answers a question that a server asked in an earlier call.
type Input struct {
	// Key and State are of the result that asked (input_required, revision
	// 2026-07-28); without a key the question came in the midst of a call.
	Key, State string
	// Params of the question.
	Params json.RawMessage
	// Action and Content, one JSON object, are the answer.
	Action  elicit.Action
	Content json.RawMessage
}

// Question is what the server asks the user in an answer that was given in a
// revision of the protocol, without the user's answer to it: in the midst of the
// call, or as its result. Of a result with several requests none can be told from
// the other by a person, and one for anything but a form is none.
func (a Answer) Question(version string) (q Input, asked bool) {
	if a.Asked != nil {
		return Input{Params: a.Asked}, true
	}
	var r struct {
		Type     string `json:"resultType"`
		State    string `json:"requestState"`
		Requests map[string]struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		} `json:"inputRequests"`
	}
	if version < Stateless || json.Unmarshal(a.Result, &r) != nil || r.Type != "input_required" || len(r.Requests) != 1 {
		return Input{}, false
	}
	for key, one := range r.Requests {
		q = Input{Key: key, State: r.State, Params: one.Params}
		asked = key != "" && one.Method == methodElicit
	}
	return q, asked
}

// result is what the server gets.
func (in Input) result() json.RawMessage {
	b, err := json.Marshal(struct {
		Action  elicit.Action   `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}{in.Action, in.Content})
	if err != nil { // it was checked to be JSON
		return json.RawMessage(cancelled)
	}
	return b
}

// cancelled answers a question that nobody is asked while the call is under way.
const cancelled = `{"action":"cancel"}`

// Respond answers what a server asks of this client. x is the call in the midst
// of which it was certainly asked, or nil. Of questions to the user the one that
// the call brings the answer to is answered; any other is cancelled, and the first
// of them noted. Nothing else is offered, sampling and roots least of all.
func Respond(x *Exchange, asked *jsonrpc.Request) *jsonrpc.Response {
	switch asked.Method {
	case methodPing:
		return &jsonrpc.Response{ID: asked.ID, Result: json.RawMessage(`{}`)}
	case methodElicit:
		if x == nil {
			return &jsonrpc.Response{ID: asked.ID, Result: json.RawMessage(cancelled)}
		}
		return &jsonrpc.Response{ID: asked.ID, Result: x.elicited(asked.Params)}
	default:
		return &jsonrpc.Response{ID: asked.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not offered"}}
	}
}

func (x *Exchange) elicited(params json.RawMessage) json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	if in := x.input; in != nil && !x.given && in.Key == "" && elicit.Digest(in.Params) != "" && elicit.Digest(in.Params) == elicit.Digest(params) {
		x.given = true
		return in.result()
	}
	if x.asked == nil {
		x.asked = params
	}
	return json.RawMessage(cancelled)
}

// Progressed counts a notification of progress that is of the exchange.
func (x *Exchange) Progressed(n *jsonrpc.Request) {
	var p struct {
		Token json.RawMessage `json:"progressToken"`
	}
	if x.token == "" || n.Method != methodProgress || json.Unmarshal(n.Params, &p) != nil || string(p.Token) != `"`+x.token+`"` {
		return
	}
	x.mu.Lock()
	x.progress++
	x.mu.Unlock()
	if x.progressed != nil {
		x.progressed()
	}
}
