package chaostools

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

const (
	toolName = "add"
	// maxWork is how long an effect takes at most: calls are killed within one.
	maxWork = 400 * time.Millisecond
	maxBody = 1 << 20
)

// effect is one that has begun.
type effect struct {
	key string
	at  time.Time
}

// counter is an MCP server over streamable HTTP, without sessions, written from
// the protocol. It outlives whoever calls it, and notes each effect before it
// answers.
type counter struct {
	*httptest.Server

	mu      sync.Mutex
	effects []effect
}

func newCounter() *counter {
	c := &counter{}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	return c
}

// seen are the effects so far.
func (c *counter) seen() []effect {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]effect(nil), c.effects...)
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Arguments       struct {
			Key string `json:"key"`
		} `json:"arguments"`
	} `json:"params"`
}

func (c *counter) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var req request
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil || json.Unmarshal(raw, &req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if req.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": req.ID}
	switch req.Method {
	case "initialize":
		answer["result"] = map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": struct{}{}},
			"serverInfo": map[string]any{"name": "counter", "version": "1"},
		}
	case "ping":
		answer["result"] = struct{}{}
	case "tools/list":
		answer["result"] = map[string]any{"tools": []any{map[string]any{
			"name": toolName, "description": "Has an effect that cannot be taken back.",
			"inputSchema": map[string]any{
				"type": "object", "properties": map[string]any{"key": map[string]any{"type": "string"}},
				"required": []string{"key"}, "additionalProperties": false,
			},
		}}}
	case "tools/call":
		c.add(req.Params.Arguments.Key)
		select { // the work after the effect, in which callers are killed
		case <-time.After(rand.N(maxWork)): //nolint:gosec // chance, not secrets
		case <-r.Context().Done():
		}
		answer["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "added"}}}
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "method not found"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the caller may have been killed
}

func (c *counter) add(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effects = append(c.effects, effect{key, time.Now()})
}
