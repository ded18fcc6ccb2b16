package demomodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// messages is the wire of Anthropic Messages.
type messages struct{}

type messagesRequest struct {
	Model        string            `json:"model"`
	System       blocks            `json:"system"`
	Messages     []messagesMessage `json:"messages"`
	Tools        []messagesTool    `json:"tools"`
	Stream       bool              `json:"stream"`
	OutputConfig struct {
		Format messagesFormat `json:"format"`
	} `json:"output_config"`
	OutputFormat messagesFormat `json:"output_format"`
}

type messagesFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type messagesMessage struct {
	Role    string `json:"role"`
	Content blocks `json:"content"`
}

type messagesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// block is one block of content.
type block struct {
	Type      string     `json:"type"`
	Text      string     `json:"text"`
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	ToolUseID string     `json:"tool_use_id"`
	Content   resultText `json:"content"`
}

// blocks is content: a list of blocks, or a text, which is one.
type blocks []block

// UnmarshalJSON implements [json.Unmarshaler].
func (b *blocks) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*b = blocks{{Type: "text", Text: text}}
		return nil
	}
	var list []block
	if json.Unmarshal(data, &list) != nil {
		return errors.New("content is neither a text nor a list of blocks")
	}
	*b = list
	return nil
}

func (b blocks) texts() []string {
	var all []string
	for _, one := range b {
		if one.Type == "text" {
			all = append(all, one.Text)
		}
	}
	return all
}

func (messages) decode(raw []byte) (*request, error) {
	var in messagesRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the request is not a Messages request: %w", err)
	}
	req := &request{model: in.Model, instructions: strings.Join(in.System.texts(), "\n"), stream: in.Stream}
	for _, f := range []messagesFormat{in.OutputConfig.Format, in.OutputFormat} {
		if f.Type == "json_schema" {
			req.schema = f.Schema
		}
	}
	for _, t := range in.Tools {
		if t.Type == "" || t.Type == "custom" { // the provider would run some of the others
			req.tools = append(req.tools, offered("", t.Name, t.InputSchema))
		}
	}
	for _, m := range in.Messages {
		req.messages = append(req.messages, m.neutral()...)
	}
	sealed, err := fieldOf(raw, "messages")
	if err != nil {
		return nil, err
	}
	return req, req.complete(sealed)
}

// neutral takes a message apart: results of tools stand beside texts of the user
// on this wire, and come before them.
func (m messagesMessage) neutral() []message {
	var all []message
	rest := message{role: roleOf(m.Role), texts: m.Content.texts(), system: isSystem(m.Role)}
	for _, b := range m.Content {
		switch b.Type {
		case "tool_result":
			all = append(all, message{role: roleTool, callID: b.ToolUseID, texts: []string{string(b.Content)}})
		case "tool_use":
			if rest.asked == nil {
				rest.asked = make(map[string]string)
			}
			rest.asked[b.ID] = b.Name
		}
	}
	if len(all) > 0 && len(rest.texts) == 0 {
		return all
	}
	return append(all, rest)
}

func (messages) answer(w http.ResponseWriter, r *request) sink {
	a := &messagesAnswer{body: messagesBody{
		ID: "msg_" + r.id("message"), Type: "message", Role: "assistant", Model: r.model, Content: []any{},
	}}
	if r.stream {
		a.sse = newSSE(w)
	} else {
		a.w = w
	}
	return a
}

type messagesError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func (messages) refusal(status int, message string) any {
	e := messagesError{Type: "error"}
	e.Error.Message = message
	switch {
	case status == http.StatusTooManyRequests:
		e.Error.Type = "rate_limit_error"
	case status == http.StatusRequestEntityTooLarge:
		e.Error.Type = "request_too_large"
	case status == http.StatusNotFound:
		e.Error.Type = "not_found_error"
	case status == 529:
		e.Error.Type = "overloaded_error"
	case status >= http.StatusInternalServerError:
		e.Error.Type = "api_error"
	default:
		e.Error.Type = "invalid_request_error"
	}
	return e
}

// counting is the route that counts the tokens of a request to messages. Nothing
// that the request says is obeyed there.
type counting struct{ messages }

type tokenCount struct {
	InputTokens int `json:"input_tokens"`
}
