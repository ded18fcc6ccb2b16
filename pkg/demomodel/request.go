package demomodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxTools bounds how many tools one request may offer.
const maxTools = 1024

// Roles of messages that the model looks at; others only count as context.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
)

// request is the part of a Chat Completions request that the model reads. What
// else the wire knows is accepted and has no effect.
type request struct {
	Model         string        `json:"model"`
	Messages      []message     `json:"messages"`
	Tools         []offer       `json:"tools"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`

	// digest covers model and messages; every id is made from it.
	digest [sha256.Size]byte
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       string     `json:"role"`
	Content    content    `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`

	// tool is the name of the tool whose result this is, where it is known.
	tool string
}

type offer struct {
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

// content is the text of a message, which the wire carries as a string, as a
// list of parts, or not at all. Parts that are not text are left out.
type content string

// UnmarshalJSON implements [json.Unmarshaler].
func (c *content) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*c = content(*text)
		}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return errors.New("content is neither a text nor a list of parts")
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	*c = content(strings.Join(texts, "\n"))
	return nil
}

// decode reads one request. Its errors say what to change and are safe to send.
func decode(body io.Reader) (*request, error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("the request could not be read: %w", err)
	}
	req := &request{}
	if err := json.Unmarshal(raw, req); err != nil {
		return nil, fmt.Errorf("the request is not a Chat Completions request: %w", err)
	}
	if len(req.Messages) == 0 {
		return nil, errors.New("messages must hold at least one message")
	}
	if len(req.Tools) > maxTools {
		return nil, fmt.Errorf("tools must hold at most %d tools", maxTools)
	}
	if err := req.seal(raw); err != nil {
		return nil, err
	}
	req.nameResults()
	return req, nil
}

// nameResults finds out which tool each result is of. Ids of calls may come
// again in later turns: the call before the result counts.
func (r *request) nameResults() {
	called := make(map[string]string)
	for i := range r.Messages {
		m := &r.Messages[i]
		for _, c := range m.ToolCalls {
			called[c.ID] = c.Function.Name
		}
		if m.Role == roleTool {
			m.tool = called[m.ToolCallID]
		}
	}
}

// seal computes the digest from the messages as they were sent, so that ids
// differ wherever the conversation does.
func (r *request) seal(raw []byte) error {
	var sent struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(raw, &sent); err != nil {
		return fmt.Errorf("the request is not a Chat Completions request: %w", err)
	}
	h := sha256.New()
	h.Write([]byte(strconv.Quote(r.Model)))
	h.Write(sent.Messages)
	h.Sum(r.digest[:0])
	return nil
}

// completionID is the id of the answer.
func (r *request) completionID() string { return "chatcmpl-" + r.id("completion") }

// callID is the id of the answer's nth tool call. It differs from every other
// call id of the conversation, because the conversation has grown in between.
func (r *request) callID(n int) string { return "call_" + r.id("call "+strconv.Itoa(n)) }

func (r *request) id(label string) string {
	sum := sha256.Sum256(append(r.digest[:], label...))
	return hex.EncodeToString(sum[:12])
}

// lastUser is the index of the last user message, or -1. Earlier user messages
// without an answer are turns that failed: their commands were for then.
func (r *request) lastUser() int {
	for i, m := range slices.Backward(r.Messages) {
		if m.Role == roleUser {
			return i
		}
	}
	return -1
}

// promptWords counts what the model was sent, in words: its tokens.
func (r *request) promptWords() int {
	n := 0
	for _, m := range r.Messages {
		n += len(strings.Fields(string(m.Content)))
	}
	return n
}
