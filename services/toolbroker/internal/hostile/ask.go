package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Elicitation is what the tools ask_midway and ask_state ask the user.
const Elicitation = `{"message":"Which branch?","requestedSchema":{"type":"object","required":["branch"],"properties":{` +
	`"branch":{"type":"string","title":"Branch","maxLength":20},"force":{"type":"boolean","default":false},"depth":{"type":"integer","minimum":1}}}}`

// State is what ask_state wants to get back.
const State = "state: opaque\u2028 \"and odd\""

// asks are what a server may not ask, with what the tool ask_everything says that
// it got.
var asks = []string{"sampling/createMessage", "roots/list", "elicitation/create", "ping"}

// ask sends a request of this server's and waits for the answer.
func (s *server) ask(method, params string) string {
	id := fmt.Sprintf("%q", fmt.Sprintf("s-%d", time.Now().UnixNano()))
	waits := make(chan json.RawMessage, 1)
	s.mu.Lock()
	if s.asked == nil {
		s.asked = map[string]chan json.RawMessage{}
	}
	s.asked[id] = waits
	s.mu.Unlock()
	s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return string(<-waits)
}

// asking are the tools of a server over stdio that ask for something.
func (s *server) asking(r request) (result string, known bool) {
	text := func(t string) string { return `{"content":[{"type":"text","text":` + quote(t) + `}]}` }
	switch r.Params.Name {
	case "ask_midway": // after an effect
		s.effect("before")
		got := s.ask("elicitation/create", Elicitation)
		s.effect("after:" + got)
		return text(got), true
	case "ask_slowly":
		got := make(chan string, 1)
		go func() { time.Sleep(100 * time.Millisecond); got <- s.ask("elicitation/create", Elicitation) }() //nolint:forbidigo // another process
		return text(<-got), true
	case "ask_everything":
		var all []string
		for _, m := range asks {
			all = append(all, m+"="+s.ask(m, `{"message":"m","requestedSchema":{"type":"string"},"mode":"form"}`))
		}
		return text(strings.Join(all, " ")), true
	case "progress":
		for n := range 40 {
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, r.Params.Meta.ProgressToken, n))
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // another process
		}
		return text("done"), true
	}
	return "", false
}

// hears takes an answer to what this server asked over a stream.
func (h *HTTP) hears(q request) {
	h.mu.Lock()
	waits := h.asked[string(q.ID)]
	h.mu.Unlock()
	if waits != nil {
		waits <- append(append(json.RawMessage{}, q.Result...), q.Error...)
	}
}

// asking are the tools of a server over HTTP that ask for something.
func (h *HTTP) asking(w http.ResponseWriter, r *http.Request, q request) bool {
	text := func(t string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, q.ID, quote(t))
	}
	switch q.Params.Name {
	case "ask_midway":
		h.effect("before")
		w.Header().Set("Content-Type", "text/event-stream")
		id := fmt.Sprintf("%q", fmt.Sprintf("s-%d", time.Now().UnixNano()))
		waits := make(chan json.RawMessage, 1)
		h.mu.Lock()
		if h.asked == nil {
			h.asked = map[string]chan json.RawMessage{}
		}
		h.asked[id] = waits
		h.mu.Unlock()
		event(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":%s}`, id, Elicitation))
		select {
		case got := <-waits:
			h.effect("after:" + string(got))
			event(w, text(string(got)))
		case <-r.Context().Done():
		}
	case "ask_state":
		if q.Params.InputResponses == nil {
			h.effect("asked")
			h.result(w, q, `{"resultType":"input_required","inputRequests":{"which":{"method":"elicitation/create","params":`+Elicitation+`}},"requestState":`+quote(State)+`}`)
			return true
		}
		h.effect(fmt.Sprintf("answered:%t:%s", q.Params.RequestState == State, q.Params.InputResponses))
		h.json(w, http.StatusOK, text("answered"))
	case "ask_for_model": // sampling is refused by default
		h.result(w, q, `{"resultType":"input_required","inputRequests":{"m":{"method":"sampling/createMessage","params":{"messages":[]}}}}`)
	default:
		return false
	}
	return true
}
