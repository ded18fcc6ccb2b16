package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

// turn lets the model work until it has nothing more to call.
func (a *agent) turn(ctx context.Context, prompt []block) error {
	tools, err := a.tools.list(ctx)
	if err != nil {
		return err
	}
	tools = append(tools, object{"type": "function", "function": object{
		"name": look, "description": "Says what a file of the workspace is.", "parameters": object{"type": "object", "properties": object{"file": object{"type": "string"}}},
	}})
	a.session.said(prompt)
	for {
		said, err := a.model(ctx, tools)
		if err != nil {
			return err
		}
		a.session.add(said)
		if len(said.Calls) == 0 {
			return nil
		}
		for _, t := range a.calls(ctx, said.Calls) {
			a.session.add(t)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// delta is what a stream of the model adds.
type delta struct {
	Choices []struct {
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
			Calls     []struct {
				Index int `json:"index"`
				call
			} `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

// model asks the model, and tells what it says.
func (a *agent) model(ctx context.Context, tools []object) (turn, error) {
	said := turn{Role: "assistant"}
	body := raw(object{
		"model": os.Getenv("MODEL"), "stream": true, "stream_options": object{"include_usage": true}, "messages": a.session.forModel(), "tools": tools,
	})
	finished := false
	err := post(ctx, os.Getenv("MODEL_URL")+"/chat/completions", http.Header{"Authorization": {"Bearer " + os.Getenv("MODEL_KEY")}}, body, func(event []byte) {
		var d delta
		if json.Unmarshal(event, &d) != nil || len(d.Choices) == 0 {
			return
		}
		c := d.Choices[0]
		finished = finished || c.FinishReason != ""
		if c.Delta.Reasoning != "" {
			a.chunk("agent_thought_chunk", c.Delta.Reasoning)
		}
		if c.Delta.Content != "" {
			said.Content += c.Delta.Content
			a.chunk("agent_message_chunk", c.Delta.Content)
		}
		for _, part := range c.Delta.Calls {
			for len(said.Calls) <= part.Index {
				said.Calls = append(said.Calls, call{Type: "function"})
			}
			whole := &said.Calls[part.Index]
			whole.ID += part.ID
			whole.Function.Name += part.Function.Name
			whole.Function.Arguments += part.Function.Arguments
		}
	})
	if err == nil && !finished {
		err = errors.New("the model's stream ended without its end")
	}
	return said, err
}

// calls asks about all calls, and makes those that may be made, at once.
func (a *agent) calls(ctx context.Context, calls []call) []turn {
	answers := make([]<-chan json.RawMessage, len(calls))
	for i, c := range calls {
		if c.Function.Name == look {
			continue
		}
		about := object{
			"toolCallId": c.ID, "title": "cofferdam_" + c.Function.Name, "kind": "other", "status": "pending", "rawInput": json.RawMessage(c.Function.Arguments),
		}
		u := object{"sessionUpdate": "tool_call"}
		maps.Copy(u, about)
		a.update(u)
		answers[i] = a.ask("session/request_permission", object{"sessionId": a.session.ID, "toolCall": about, "options": []object{
			{"optionId": "always", "name": "Always", "kind": "allow_always"},
			{"optionId": "yes", "name": "Yes", "kind": "allow_once"},
			{"optionId": "no", "name": "No", "kind": "reject_once"},
		}})
	}
	out := make([]turn, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			if c.Function.Name == look {
				out[i] = turn{Role: "tool", Content: a.look(c), CallID: c.ID}
				return
			}
			text, failed := "The user has rejected this call.", true
			select {
			case answer := <-answers[i]:
				if strings.Contains(string(answer), `"yes"`) {
					text, failed = a.tools.call(ctx, c)
				}
			case <-ctx.Done():
			}
			status := "completed"
			if failed {
				status = "failed"
			}
			a.update(object{"sessionUpdate": "tool_call_update", "toolCallId": c.ID, "status": status, "content": []object{
				{"type": "content", "content": object{"type": "text", "text": text}},
			}})
			out[i] = turn{Role: "tool", Content: text, CallID: c.ID}
		})
	}
	wg.Wait()
	return out
}

// look is a tool of the agent's own, about which it asks nobody.
const look = "look"

// look finds the file of the workspace whose path ends in a name, and says what is
// in it.
func (a *agent) look(c call) string {
	a.update(object{
		"sessionUpdate": "tool_call", "toolCallId": c.ID, "title": look, "kind": "read", "status": "in_progress", "rawInput": json.RawMessage(c.Function.Arguments),
	})
	text, status := "There is no such file.", "failed"
	var args struct {
		File string `json:"file"`
	}
	_ = json.Unmarshal([]byte(c.Function.Arguments), &args) // no name is no file's
	root, err := os.OpenRoot(".")
	if err != nil {
		panic(err)
	}
	defer func() { _ = root.Close() }() // nothing was written
	_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || args.File == "" || !strings.HasSuffix(path, args.File) {
			return nil //nolint:nilerr // what cannot be read is not looked at
		}
		if content, err := root.ReadFile(path); err == nil {
			text, status = fmt.Sprintf("sha256 %x", sha256.Sum256(content)), "completed"
			if utf8.Valid(content) {
				text += ": " + string(content)
			}
		}
		return nil
	})
	a.update(object{"sessionUpdate": "tool_call_update", "toolCallId": c.ID, "status": status, "content": []object{
		{"type": "content", "content": object{"type": "text", "text": text}},
	}})
	return text
}

// server is the MCP server of the session.
type server struct {
	URL     string `json:"url"`
	Headers []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"headers"`
}

// request makes a request of MCP, and gives its result.
func (s server) request(ctx context.Context, method string, params object) (result json.RawMessage, err error) {
	h := http.Header{"Accept": {"application/json, text/event-stream"}}
	for _, one := range s.Headers {
		h.Set(one.Name, one.Value)
	}
	body := raw(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	err = post(ctx, s.URL, h, body, func(event []byte) {
		var m message
		if json.Unmarshal(event, &m) == nil && m.Result != nil {
			result = m.Result
		}
	})
	if err == nil && result == nil {
		err = errors.New("no result of " + method)
	}
	return result, err
}

// list gives the tools in the form of the model.
func (s server) list(ctx context.Context) ([]object, error) {
	result, err := s.request(ctx, "tools/list", object{})
	if err != nil {
		return nil, err
	}
	var listed struct {
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(result, &listed); err != nil {
		return nil, err
	}
	var out []object
	for _, t := range listed.Tools {
		out = append(out, object{"type": "function", "function": object{"name": t.Name, "description": t.Description, "parameters": t.InputSchema}})
	}
	return out, nil
}

func (s server) call(ctx context.Context, c call) (text string, failed bool) {
	result, err := s.request(ctx, "tools/call", object{"name": c.Function.Name, "arguments": json.RawMessage(c.Function.Arguments)})
	if err != nil {
		return "The tool did not answer.", true
	}
	var r struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return "The tool has no result.", true
	}
	for _, part := range r.Content {
		text += part.Text
	}
	return text, r.IsError
}

// client of the worker's endpoints; the run's end ends its requests.
var client = &http.Client{}

// post sends JSON, and gives each event of the answer, which may be one body.
func post(ctx context.Context, url string, h http.Header, body []byte, each func(event []byte)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body)) //nolint:gosec // see below
	if err != nil {
		return err
	}
	req.Header = h
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01") // its own, which is nobody else's
	res, err := client.Do(req)                                                               //nolint:gosec // the worker says where its endpoints are
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with status %d", req.URL.Path, res.StatusCode)
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(res.Body)
		each(text)
		return err
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			each(data)
		}
	}
	return lines.Err()
}
