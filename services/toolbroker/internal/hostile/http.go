package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// HTTP is the hostile server over streamable HTTP, in the process of the test.
// Its fields are set before it is served.
type HTTP struct {
	// Stateless makes it speak 2026-07-28; otherwise 2025-06-18 with a session.
	Stateless bool
	// Token has to stand in the header Authorization as a bearer token, if set.
	Token string
	// Elsewhere is where the tool redirect leads; "" is the metadata address.
	Elsewhere string
	// TTL of the list of tools in milliseconds, where the revision knows that.
	TTL int

	mu       sync.Mutex
	mode     string
	tools    string
	session  int
	effects  []string
	refused  bool
	requests map[string]int
	streams  map[chan string]bool
	asked    map[string]chan json.RawMessage
}

// Further modes, of a server over HTTP alone.
const (
	ModeHang    = "hang"    // answers no request, not even with a head
	ModeDrip    = "drip"    // answers one byte at a time, without end
	ModeHeaders = "headers" // answers with headers of a megabyte
	ModeRefuse  = "refuse"  // answers everything with HTTP 503
)

// SetMode changes how it misbehaves, from the next request on.
func (h *HTTP) SetMode(mode string) { h.mu.Lock(); h.mode = mode; h.mu.Unlock() }

// SetTools makes the list of tools another one, and says so to whoever listens.
func (h *HTTP) SetTools(list string) {
	h.SetToolsQuietly(list)
	h.Announce()
}

// SetToolsQuietly is SetTools of a server that does not say so.
func (h *HTTP) SetToolsQuietly(list string) { h.mu.Lock(); h.tools = list; h.mu.Unlock() }

// Announce says that the list of tools has changed.
func (h *HTTP) Announce() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		select {
		case s <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`:
		default:
		}
	}
}

// Expire forgets the session.
func (h *HTTP) Expire() { h.mu.Lock(); h.session++; h.mu.Unlock() }

// Effects are what its tools did, in order.
func (h *HTTP) Effects() []string { h.mu.Lock(); defer h.mu.Unlock(); return slices.Clone(h.effects) }

// Requests is how many messages of a method arrived.
func (h *HTTP) Requests(method string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests[method]
}

// Listening is how many streams of notifications are open.
func (h *HTTP) Listening() int { h.mu.Lock(); defer h.mu.Unlock(); return len(h.streams) }

// Refused says that a request came with the wrong token.
func (h *HTTP) Refused() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.refused }

func (h *HTTP) effect(line string) { h.mu.Lock(); h.effects = append(h.effects, line); h.mu.Unlock() }

func (h *HTTP) id() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("session-%d", h.session)
}

// SetToken changes the token that it takes.
func (h *HTTP) SetToken(token string) { h.mu.Lock(); h.Token = token; h.mu.Unlock() }

// ServeHTTP implements http.Handler.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q request
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	_ = json.Unmarshal(body, &q) // a GET has none
	h.mu.Lock()
	if h.requests == nil {
		h.requests, h.streams = map[string]int{}, map[chan string]bool{}
	}
	h.requests[r.Method+" "+q.Method]++
	mode, token := h.mode, h.Token
	h.mu.Unlock()
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		h.mu.Lock()
		h.refused = true
		h.mu.Unlock()
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch mode {
	case ModeHang:
		<-r.Context().Done()
		return
	case ModeDrip:
		drip(w, r, "application/json")
		return
	case ModeHeaders:
		w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
		w.WriteHeader(http.StatusOK)
		return
	case ModeRefuse:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if given := r.Header.Get("Mcp-Session-Id"); !h.Stateless && q.Method != "initialize" && q.Method != "server/discover" && given != h.id() {
		h.json(w, http.StatusNotFound, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		return
	}
	switch {
	case r.Method == http.MethodGet || q.Method == "subscriptions/listen":
		h.listen(w, r)
	case r.Method == http.MethodDelete:
		h.Expire()
		w.WriteHeader(http.StatusNoContent)
	case q.Method == "notifications/cancelled":
		h.effect("cancelled")
		w.WriteHeader(http.StatusAccepted)
	case len(q.ID) == 0 || q.Method == "":
		h.hears(q)
		w.WriteHeader(http.StatusAccepted)
	default:
		h.answer(w, r, q, mode)
	}
}

func (h *HTTP) answer(w http.ResponseWriter, r *http.Request, q request, mode string) {
	switch q.Method {
	case "server/discover":
		if !h.Stateless {
			h.error(w, q, "no such method")
			return
		}
		h.result(w, q, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},
			"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"hostile","version":"1"}},"ttlMs":0,"cacheScope":"public"}`)
	case "initialize":
		w.Header().Set("Mcp-Session-Id", h.id())
		h.result(w, q, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"hostile","version":"1"}}`)
	case "tools/list":
		if h.Stateless && r.Header.Get("Mcp-Method") != q.Method {
			h.error(w, q, "headers do not match")
			return
		}
		h.mu.Lock()
		list := h.tools
		h.mu.Unlock()
		if list == "" {
			list = (&server{mode: mode}).list(q)
		}
		h.result(w, q, strings.TrimSuffix(list, "}")+fmt.Sprintf(`,"ttlMs":%d,"cacheScope":"private"}`, h.TTL))
	case "tools/call":
		h.call(w, r, q)
	default:
		h.error(w, q, "no such method")
	}
}

func (h *HTTP) json(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) //nolint:gosec // it is meant to be hostile; and the client may be gone
}

func (h *HTTP) result(w http.ResponseWriter, q request, result string) {
	h.json(w, http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result))
}

func (h *HTTP) error(w http.ResponseWriter, q request, text string) {
	h.json(w, http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":%q}}`, q.ID, text))
}

// listen keeps a stream of notifications open.
func (h *HTTP) listen(w http.ResponseWriter, r *http.Request) {
	s := make(chan string, 16)
	h.mu.Lock()
	h.streams[s] = true
	h.mu.Unlock()
	defer func() { h.mu.Lock(); delete(h.streams, s); h.mu.Unlock() }()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-s:
			event(w, text)
		}
	}
}

func event(w http.ResponseWriter, text string) {
	_, _ = fmt.Fprintf(w, "id: 1\ndata: %s\n\n", text) // the client may be gone
	flush(w)
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// Serve serves it until the end of the test, and gives its URL.
func (h *HTTP) Serve(tb testing.TB) string {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(func() { End(s) })
	return s.URL + "/mcp"
}

// End ends a server and every connection to it, also one that comes meanwhile, for
// which the server would wait without end.
func End(s *httptest.Server) {
	closed := make(chan struct{})
	go func() { defer close(closed); s.Close() }()
	for {
		s.CloseClientConnections()
		select {
		case <-closed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
