package demomodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// responses is the wire of OpenAI Responses. What the provider would keep
// (previous_response_id, conversations) is nothing to this model: the input has
// to hold the whole conversation.
type responses struct{}

type responsesRequest struct {
	Model        string          `json:"model"`
	Instructions string          `json:"instructions"`
	Input        responsesInput  `json:"input"`
	Tools        []responsesTool `json:"tools"`
	Stream       bool            `json:"stream"`
	Text         struct {
		Format struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"text"`
}

// responsesTool is a function, or a namespace of functions.
type responsesTool struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Tools      []responsesTool `json:"tools"`
}

// responsesItem is one item of the input.
type responsesItem struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content textContent     `json:"content"`
	CallID  string          `json:"call_id"`
	Name    string          `json:"name"`
	Output  resultText      `json:"output"`
	Tools   []responsesTool `json:"tools"`
}

// responsesInput is a list of items; a text is a message of the user.
type responsesInput []responsesItem

// UnmarshalJSON implements [json.Unmarshaler].
func (in *responsesInput) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*in = responsesInput{{Role: "user", Content: textContent{text}}}
		return nil
	}
	var items []responsesItem
	if err := json.Unmarshal(data, &items); err != nil {
		return fmt.Errorf("input is neither a text nor a list of items: %w", err)
	}
	*in = items
	return nil
}

// resultText is what a tool returned: a text, a list of parts, or else JSON.
type resultText string

// UnmarshalJSON implements [json.Unmarshaler].
func (r *resultText) UnmarshalJSON(data []byte) error {
	var parts textContent
	if parts.UnmarshalJSON(data) == nil {
		*r = resultText(strings.Join(parts, "\n"))
	} else {
		*r = resultText(data)
	}
	return nil
}

func (responses) decode(raw []byte) (*request, error) {
	var in responsesRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the request is not a Responses request: %w", err)
	}
	req := &request{model: in.Model, instructions: in.Instructions, stream: in.Stream}
	if in.Text.Format.Type == "json_schema" {
		req.schema = in.Text.Format.Schema
	}
	req.tools = offersOf("", in.Tools)
	for _, item := range in.Input {
		if item.Type == "additional_tools" {
			req.tools = append(req.tools, offersOf("", item.Tools)...)
		}
		req.messages = append(req.messages, item.neutral())
	}
	sealed, err := fieldOf(raw, "input")
	if err != nil {
		return nil, err
	}
	return req, req.complete(sealed)
}

// offersOf lists the functions. A namespace holds functions and no namespaces;
// what else there is, the provider would run.
func offersOf(namespace string, tools []responsesTool) []offer {
	var all []offer
	for _, t := range tools {
		switch {
		case t.Type == "function":
			all = append(all, offered(namespace, t.Name, t.Parameters))
		case t.Type == "namespace" && namespace == "":
			all = append(all, offersOf(t.Name, t.Tools)...)
		}
	}
	return all
}

func (i responsesItem) neutral() message {
	switch {
	case i.Type == "" || i.Type == "message":
		return message{role: roleOf(i.Role), texts: i.Content, system: isSystem(i.Role)}
	case strings.HasSuffix(i.Type, "_output"):
		return message{role: roleTool, callID: i.CallID, texts: []string{string(i.Output)}}
	case strings.HasSuffix(i.Type, "_call"):
		return message{role: roleAssistant, asked: map[string]string{i.CallID: i.Name}}
	case i.Type == "reasoning":
		return message{role: roleAssistant}
	default:
		return message{}
	}
}

func (responses) answer(w http.ResponseWriter, r *request) sink {
	a := &responsesAnswer{
		req:  r,
		body: responsesBody{ID: "resp_" + r.id("response"), Object: "response", CreatedAt: created, Model: r.model, Output: []responsesOutput{}},
	}
	if r.stream {
		a.sse = newSSE(w)
	} else {
		a.w = w
	}
	return a
}

func (responses) refusal(status int, message string) any { return chat{}.refusal(status, message) }
