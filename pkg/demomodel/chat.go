package demomodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// chat is the wire of OpenAI Chat Completions.
type chat struct{}

// created is the time of every answer. A model that always answers alike has no
// clock.
const created = 1_767_225_600

type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Tools         []chatTool    `json:"tools"`
	Stream        bool          `json:"stream"`
	StreamOptions chatOptions   `json:"stream_options"`
	Format        chatFormat    `json:"response_format"`
}

type chatOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatFormat struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

type chatMessage struct {
	Role       string      `json:"role"`
	Content    textContent `json:"content"`
	ToolCalls  []chatCall  `json:"tool_calls"`
	ToolCallID string      `json:"tool_call_id"`
}

type chatTool struct {
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// textContent is the text of a message, which the wires of OpenAI carry as a
// string, as a list of parts, or not at all. Parts that are not text are left
// out.
type textContent []string

// UnmarshalJSON implements [json.Unmarshaler].
func (c *textContent) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*c = textContent{*text}
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
	for _, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text":
			*c = append(*c, p.Text)
		}
	}
	return nil
}

func (chat) decode(raw []byte) (*request, error) {
	var in chatRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the request is not a Chat Completions request: %w", err)
	}
	req := &request{model: in.Model, stream: in.Stream, withUsage: in.StreamOptions.IncludeUsage}
	if in.Format.Type == "json_schema" {
		req.schema = in.Format.JSONSchema.Schema
	}
	for _, t := range in.Tools {
		req.tools = append(req.tools, offered("", t.Function.Name, t.Function.Parameters))
	}
	for _, m := range in.Messages {
		req.messages = append(req.messages, m.neutral())
	}
	sealed, err := fieldOf(raw, "messages")
	if err != nil {
		return nil, err
	}
	return req, req.complete(sealed)
}

func (m chatMessage) neutral() message {
	out := message{role: roleOf(m.Role), texts: m.Content, callID: m.ToolCallID, system: isSystem(m.Role)}
	for _, c := range m.ToolCalls {
		if out.asked == nil {
			out.asked = make(map[string]string)
		}
		out.asked[c.ID] = c.Function.Name
	}
	return out
}

func roleOf(name string) role {
	switch name {
	case "user":
		return roleUser
	case "assistant", "model":
		return roleAssistant
	case "tool":
		return roleTool
	default:
		return roleOther
	}
}

func isSystem(role string) bool { return role == "system" || role == "developer" }

// fieldOf is a field of a request as it was sent, so that ids differ wherever
// the conversation does.
func fieldOf(raw []byte, name string) ([]byte, error) {
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(raw, &sent); err != nil {
		return nil, fmt.Errorf("the request is not a JSON object: %w", err)
	}
	return sent[name], nil
}

func (chat) answer(w http.ResponseWriter, r *request) sink {
	id := "chatcmpl-" + r.id("completion")
	if r.stream {
		head := chatChunk{ID: id, Object: "chat.completion.chunk", Created: created, Model: r.model}
		return &chatStream{sse: newSSE(w), head: head, withUsage: r.withUsage}
	}
	return &chatWhole{w: w, head: chatCompletion{ID: id, Object: "chat.completion", Created: created, Model: r.model}}
}

type openAIError struct {
	Error openAIErrorDetail `json:"error"`
}

type openAIErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func (chat) refusal(status int, message string) any {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	return openAIError{Error: openAIErrorDetail{Message: message, Type: kind, Code: fmt.Sprintf("demo_%d", status)}}
}
