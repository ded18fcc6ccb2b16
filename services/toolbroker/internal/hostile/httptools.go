package hostile

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// HTTPTools are tools of a server over HTTP alone.
var HTTPTools = []string{
	"stream", "cut", "drip", "giant", "giant_event", "expire", "redirect", "headers", "unavailable", "forbidden", "empty", "other_id", "ask_twice", "token", "flood",
	"ask_state", "ask_for_model",
}

// HTTPList is a list with the good tools and those of HTTP.
func HTTPList() string {
	var tools []string
	for _, name := range append(append([]string{}, good...), HTTPTools...) {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"Does %s.","inputSchema":{"type":"object"}}`, name, name))
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]}`
}

func (h *HTTP) call(w http.ResponseWriter, r *http.Request, q request) {
	text := func(t string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, q.ID, t)
	}
	name := q.Params.Name
	if h.asking(w, r, q) {
		return
	}
	switch name {
	case "count":
		h.effect(name)
		h.json(w, http.StatusOK, text(`"counted"`))
	case "stream":
		h.effect(name)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": comment\n\nevent: other\ndata: {\n\nid: 7\nretry: 10\ndata:\n\n")
		event(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
		event(w, `{"jsonrpc":"2.0","id":"other","result":{}}`)
		event(w, text(`"streamed"`))
	case "cut": // after its effect, with an id to resume from
		h.effect(name)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 7\nretry: 1\ndata:\n\n")
		flush(w)
		hangUp(w)
	case "crash":
		h.effect(name)
		hangUp(w)
	case "crash_early":
		hangUp(w)
	case "hang":
		h.effect(name)
		<-r.Context().Done()
	case "drip":
		h.effect(name)
		drip(w, r, "text/event-stream")
	case "giant":
		h.effect(name)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, q.ID)
		giant(w)
	case "giant_event":
		h.effect(name)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: ")
		giant(w)
	case "flood":
		h.effect(name)
		w.Header().Set("Content-Type", "text/event-stream")
		line := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"" + strings.Repeat("x", 1<<16) + "\"}}\n\n"
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	case "bytes":
		h.json(w, http.StatusOK, text("\"a\xffb\xed\xa0\x80c\""))
	case "surrogate":
		h.json(w, http.StatusOK, text(`"a\ud800b\udc00c"`))
	case "garbage":
		h.effect(name)
		h.json(w, http.StatusOK, `this is no JSON`)
	case "null_result":
		h.result(w, q, `null`)
	case "fail":
		h.result(w, q, `{"content":[{"type":"text","text":"no such thing"}],"isError":true}`)
	case "rpc_error":
		h.json(w, http.StatusBadRequest, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad arguments for %s"}}`, q.ID, r.Header.Get("Authorization")))
	case "ask":
		h.result(w, q, `{"resultType":"input_required","content":[],"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`)
	case "ask_twice":
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		event(w, `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		event(w, text(`"asked"`))
	case "expire":
		h.effect(name)
		h.Expire()
		h.json(w, http.StatusNotFound, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	case "redirect":
		h.effect(name)
		to := h.Elsewhere
		if to == "" {
			to = "http://169.254.169.254/latest/meta-data/"
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	case "headers":
		h.effect(name)
		w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
		h.json(w, http.StatusOK, text(`"with headers"`))
	case "unavailable":
		h.effect(name)
		w.WriteHeader(http.StatusBadGateway)
	case "forbidden":
		w.WriteHeader(http.StatusForbidden)
	case "empty":
		h.effect(name)
		w.WriteHeader(http.StatusAccepted)
	case "other_id":
		h.effect(name)
		h.json(w, http.StatusOK, `{"jsonrpc":"2.0","id":"somebody-else","result":{"content":[]}}`)
	case "token":
		h.json(w, http.StatusOK, text(quote("sent with "+r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))))
	case "environment":
		h.json(w, http.StatusOK, text(quote(strings.Join(os.Environ(), "\n"))))
	case "headers_of_call":
		h.json(w, http.StatusOK, text(quote(fmt.Sprint(r.Header))))
	default:
		h.json(w, http.StatusOK, text(quote(string(q.Params.Arguments))))
	}
}

// hangUp breaks the connection without another word.
func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close() // it is meant to be broken
	}
}

// giant writes 100 MB, or as much as somebody reads.
func giant(w io.Writer) {
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func drip(w http.ResponseWriter, r *http.Request, kind string) {
	w.Header().Set("Content-Type", kind)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
			flush(w)
		}
	}
}
