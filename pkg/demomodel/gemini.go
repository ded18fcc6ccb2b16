package demomodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// gemini is the wire of Gemini, for one model of its path.
type gemini struct {
	model  string
	stream bool
	array  bool // a stream as a JSON array, which is not spoken
}

// geminiOf reads a model and what is asked of it from a path, or gives nil.
func geminiOf(u *url.URL) wire {
	rest, ok := strings.CutPrefix(u.Path, PathGemini)
	model, action, found := strings.Cut(rest, ":")
	if !ok || !found || model == "" || strings.Contains(rest, "/") {
		return nil
	}
	switch action {
	case "generateContent":
		return gemini{model: model}
	case "streamGenerateContent":
		return gemini{model: model, stream: true, array: u.Query().Get("alt") != "sse"}
	default:
		return nil
	}
}

type geminiRequest struct {
	Contents []geminiContent `json:"contents"`
	System   geminiContent   `json:"systemInstruction"`
	Tools    []struct {
		Functions []geminiFunction `json:"functionDeclarations"`
	} `json:"tools"`
	Config struct {
		MIMEType   string          `json:"responseMimeType"`
		Schema     json.RawMessage `json:"responseSchema"`
		JSONSchema json.RawMessage `json:"responseJsonSchema"`
	} `json:"generationConfig"`
}

type geminiFunction struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	JSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

type geminiContent struct {
	Role  string       `json:"role,omitempty"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text             *string         `json:"text,omitempty"`
	Thought          bool            `json:"thought,omitempty"`
	FunctionCall     *geminiCall     `json:"functionCall,omitempty"`
	FunctionResponse *geminiResponse `json:"functionResponse,omitempty"`
}

type geminiCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiResponse struct {
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
}

// text is what a tool returned: the one text that most agents send, or JSON.
func (r geminiResponse) text() string {
	var one struct {
		Output *string `json:"output"`
	}
	if json.Unmarshal(r.Response, &one) == nil && one.Output != nil {
		return *one.Output
	}
	return string(r.Response)
}

func (g gemini) decode(raw []byte) (*request, error) {
	if g.array {
		return nil, errors.New("ask for server-sent events with alt=sse")
	}
	var in geminiRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the request is not a Gemini request: %w", err)
	}
	req := &request{model: g.model, instructions: strings.Join(in.System.texts(), "\n"), stream: g.stream, schema: in.schema()}
	for _, t := range in.Tools {
		for _, f := range t.Functions {
			schema := f.JSONSchema
			if schema == nil {
				schema = f.Parameters
			}
			req.tools = append(req.tools, offered("", f.Name, schema))
		}
	}
	for _, c := range in.Contents {
		req.messages = append(req.messages, c.neutral()...)
	}
	sealed, err := fieldOf(raw, "contents")
	if err != nil {
		return nil, err
	}
	return req, req.complete(sealed)
}

// schema is what the answer has to be valid by: any object, where only the media
// type asks for JSON.
func (r geminiRequest) schema() json.RawMessage {
	switch {
	case r.Config.JSONSchema != nil:
		return r.Config.JSONSchema
	case r.Config.Schema != nil:
		return r.Config.Schema
	case r.Config.MIMEType == "application/json":
		return json.RawMessage("{}")
	default:
		return nil
	}
}

// texts leaves out what was only thought.
func (c geminiContent) texts() []string {
	var all []string
	for _, p := range c.Parts {
		if p.Text != nil && !p.Thought {
			all = append(all, *p.Text)
		}
	}
	return all
}

// neutral takes a content apart: results of tools stand beside texts of the user
// on this wire, and come before them.
func (c geminiContent) neutral() []message {
	var all []message
	rest := message{role: roleOf(c.Role), texts: c.texts()}
	if c.Role == "" {
		rest.role = roleUser
	}
	for _, p := range c.Parts {
		if r := p.FunctionResponse; r != nil {
			all = append(all, message{role: roleTool, tool: r.Name, callID: r.ID, texts: []string{r.text()}})
		}
	}
	if len(all) > 0 && len(rest.texts) == 0 {
		return all
	}
	return append(all, rest)
}

func (g gemini) answer(w http.ResponseWriter, r *request) sink {
	a := &geminiAnswer{w: w, model: g.model, id: r.id("response")}
	if r.stream {
		a.sse = newSSE(w)
	}
	return a
}

type geminiError struct {
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
	} `json:"error"`
}

func (gemini) refusal(status int, message string) any {
	var e geminiError
	e.Error.Code, e.Error.Message, e.Error.Status = status, message, "INVALID_ARGUMENT"
	switch {
	case status == http.StatusTooManyRequests:
		e.Error.Status = "RESOURCE_EXHAUSTED"
	case status == http.StatusNotFound:
		e.Error.Status = "NOT_FOUND"
	case status == http.StatusServiceUnavailable:
		e.Error.Status = "UNAVAILABLE"
	case status >= http.StatusInternalServerError:
		e.Error.Status = "INTERNAL"
	}
	return e
}
