package demomodel_test

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
)

func object(name string) map[string]any {
	command := map[string]any{"command": map[string]any{"type": "string"}}
	schema := map[string]any{"type": "object"}
	if name == "bash" {
		schema["properties"] = command
	}
	return schema
}

func chatBody(stream bool, system string, tools []string, turns []turn) map[string]any {
	messages := []any{msg{"role": "system", "content": system}}
	for _, u := range turns {
		switch {
		case u.call != nil && u.call.args == "":
			messages = append(messages, result(u.call.id, u.result))
		case u.call != nil:
			messages = append(messages, called(*u.call))
		case u.said != "":
			messages = append(messages, msg{"role": "assistant", "content": u.said})
		default:
			var parts []any
			for _, b := range u.user {
				parts = append(parts, msg{"type": "text", "text": b})
			}
			messages = append(messages, msg{"role": "user", "content": parts})
		}
	}
	offered := []any{}
	for _, name := range tools {
		offered = append(offered, msg{"type": "function", "function": msg{"name": name, "parameters": object(name)}})
	}
	return map[string]any{"model": "m", "stream": stream, "stream_options": msg{"include_usage": true}, "messages": messages, "tools": offered}
}

func readChat(t *testing.T, stream bool, body string) (said, bool) {
	t.Helper()
	if stream {
		s := readStream(t, body)
		return s, s.done
	}
	return readWhole(t, []byte(body)), true
}

func responsesBody(stream bool, system string, tools []string, turns []turn) map[string]any {
	input := []any{}
	for _, u := range turns {
		switch {
		case u.call != nil && u.call.args == "":
			input = append(input, msg{"type": "function_call_output", "call_id": u.call.id, "output": []any{msg{"type": "input_text", "text": u.result}}})
		case u.call != nil:
			input = append(input, msg{"type": "function_call", "call_id": u.call.id, "name": u.call.name, "arguments": u.call.args})
		case u.said != "":
			input = append(input, msg{"type": "message", "role": "assistant", "content": []any{msg{"type": "output_text", "text": u.said}}})
		default:
			var parts []any
			for _, b := range u.user {
				parts = append(parts, msg{"type": "input_text", "text": b})
			}
			input = append(input, msg{"type": "message", "role": "user", "content": parts})
		}
	}
	offered := []any{}
	for _, name := range tools {
		offered = append(offered, msg{"type": "function", "name": name, "parameters": object(name)})
	}
	return map[string]any{"model": "m", "stream": stream, "instructions": system, "input": input, "tools": offered}
}

type responseDoc struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Output []struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
		Content   []struct {
			Text string `json:"text"`
		} `json:"content"`
		Summary []struct {
			Text string `json:"text"`
		} `json:"summary"`
	} `json:"output"`
	Usage *struct {
		In  int `json:"input_tokens"`
		Out int `json:"output_tokens"`
	} `json:"usage"`
}

func (d responseDoc) said() said {
	s := said{id: d.ID}
	for _, o := range d.Output {
		switch o.Type {
		case "function_call":
			s.calls = append(s.calls, call{o.CallID, o.Name, o.Arguments})
		case "reasoning":
			s.thought += o.Summary[0].Text
		case "message":
			s.text += o.Content[0].Text
		}
	}
	if d.Usage != nil {
		s.in, s.out = d.Usage.In, d.Usage.Out
	}
	return s
}

// readResponses demands that the deltas say what the terminal does.
func readResponses(t *testing.T, stream bool, body string) (said, bool) {
	t.Helper()
	if !stream {
		var d responseDoc
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			t.Fatal(err)
		}
		return d.said(), d.Status == "completed"
	}
	var deltas, end said
	done := false
	for n, e := range events(t, body) {
		var v struct {
			Type     string      `json:"type"`
			Sequence int         `json:"sequence_number"`
			Delta    string      `json:"delta"`
			Response responseDoc `json:"response"`
		}
		decodeInto(t, e.data, &v)
		if v.Type != e.name || v.Sequence != n || done {
			t.Errorf("event %d is %+v", n, e)
		}
		switch v.Type {
		case "response.output_text.delta":
			deltas.text += v.Delta
		case "response.reasoning_summary_text.delta":
			deltas.thought += v.Delta
		case "response.function_call_arguments.delta":
			deltas.id += v.Delta
		case "response.completed":
			end, done = v.Response.said(), true
		}
	}
	if !done {
		return deltas, false
	}
	args := ""
	for _, c := range end.calls {
		args += c.args
	}
	if deltas.text != end.text || deltas.thought != end.thought || deltas.id != args {
		t.Errorf("deltas %+v, terminal %+v", deltas, end)
	}
	return end, true
}

func messagesBody(stream bool, system string, tools []string, turns []turn) map[string]any {
	var messages []any
	add := func(role string, blocks ...any) {
		if n := len(messages); n > 0 {
			if last, ok := messages[n-1].(msg); ok && last["role"] == role { // roles take turns here
				before, _ := last["content"].([]any)
				last["content"] = append(before, blocks...)
				return
			}
		}
		messages = append(messages, msg{"role": role, "content": blocks})
	}
	for _, u := range turns {
		switch {
		case u.call != nil && u.call.args == "":
			add("user", msg{"type": "tool_result", "tool_use_id": u.call.id, "content": []any{msg{"type": "text", "text": u.result}}})
		case u.call != nil:
			add("assistant", msg{"type": "tool_use", "id": u.call.id, "name": u.call.name, "input": json.RawMessage(u.call.args)})
		case u.said != "":
			add("assistant", msg{"type": "text", "text": u.said})
		default:
			for _, b := range u.user {
				add("user", msg{"type": "text", "text": b})
			}
		}
	}
	offered := []any{}
	for _, name := range tools {
		offered = append(offered, msg{"name": name, "input_schema": object(name)})
	}
	return map[string]any{"model": "m", "stream": stream, "system": []any{msg{"type": "text", "text": system}}, "messages": messages, "tools": offered, "max_tokens": 9}
}

type messageDoc struct {
	ID      string `json:"id"`
	Content []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
	} `json:"content"`
	StopReason string `json:"stop_reason"`
	Usage      struct {
		In  int `json:"input_tokens"`
		Out int `json:"output_tokens"`
	} `json:"usage"`
}

func readMessages(t *testing.T, stream bool, body string) (s said, done bool) {
	t.Helper()
	var d messageDoc
	if !stream {
		decodeInto(t, body, &d)
		s = said{id: d.ID, in: d.Usage.In, out: d.Usage.Out}
		for _, b := range d.Content {
			s.text += b.Text
			s.thought += b.Thinking
			if b.Type == "tool_use" {
				s.calls = append(s.calls, call{b.ID, b.Name, string(b.Input)})
			}
		}
		return s, d.StopReason != ""
	}
	open := -1
	for n, e := range events(t, body) {
		var v struct {
			Type         string     `json:"type"`
			Message      messageDoc `json:"message"`
			Index        int        `json:"index"`
			ContentBlock struct {
				Type, ID, Name string
			} `json:"content_block"`
			Delta struct {
				Text       string `json:"text"`
				Thinking   string `json:"thinking"`
				JSON       string `json:"partial_json"`
				StopReason string `json:"stop_reason"`
			} `json:"delta"`
			Usage struct {
				Out int `json:"output_tokens"`
			} `json:"usage"`
		}
		decodeInto(t, e.data, &v)
		if v.Type != e.name || (n == 0) != (v.Type == "message_start") || done {
			t.Errorf("event %d is %+v", n, e)
		}
		switch v.Type {
		case "message_start":
			s.id, s.in = v.Message.ID, v.Message.Usage.In
		case "content_block_start":
			if open++; v.Index != open {
				t.Errorf("block %d begins as %d", open, v.Index)
			}
			if v.ContentBlock.Type == "tool_use" {
				s.calls = append(s.calls, call{id: v.ContentBlock.ID, name: v.ContentBlock.Name})
			}
		case "content_block_delta":
			s.text += v.Delta.Text
			s.thought += v.Delta.Thinking
			if v.Delta.JSON != "" {
				s.calls[len(s.calls)-1].args += v.Delta.JSON
			}
		case "message_delta":
			s.out = v.Usage.Out
			if (v.Delta.StopReason == "tool_use") != (len(s.calls) > 0) {
				t.Errorf("stopped with %s", v.Delta.StopReason)
			}
		case "message_stop":
			done = true
		}
	}
	return s, done
}

func geminiBody(_ bool, system string, tools []string, turns []turn) map[string]any {
	var contents []any
	for _, u := range turns {
		switch {
		case u.call != nil && u.call.args == "":
			contents = append(contents, msg{"role": "user", "parts": []any{msg{"functionResponse": msg{"id": u.call.id, "name": u.call.name, "response": msg{"output": u.result}}}}})
		case u.call != nil:
			contents = append(contents, msg{"role": "model", "parts": []any{msg{"functionCall": msg{"id": u.call.id, "name": u.call.name, "args": json.RawMessage(u.call.args)}}}})
		case u.said != "":
			contents = append(contents, msg{"role": "model", "parts": []any{msg{"text": u.said}}})
		default:
			var parts []any
			for _, b := range u.user {
				parts = append(parts, msg{"text": b})
			}
			contents = append(contents, msg{"role": "user", "parts": parts})
		}
	}
	functions := []any{}
	for _, name := range tools {
		functions = append(functions, msg{"name": name, "parametersJsonSchema": object(name)})
	}
	return map[string]any{"systemInstruction": msg{"parts": []any{msg{"text": system}}}, "contents": contents, "tools": []any{msg{"functionDeclarations": functions}}}
}

func readGemini(t *testing.T, stream bool, body string) (s said, done bool) {
	t.Helper()
	pieces := []string{body}
	if stream {
		pieces = nil
		for _, e := range events(t, body) {
			pieces = append(pieces, e.data)
		}
	}
	for _, p := range pieces {
		var v struct {
			ID         string `json:"responseId"`
			Candidates []struct {
				Content struct {
					Parts []struct {
						Text    string `json:"text"`
						Thought bool   `json:"thought"`
						Call    *struct {
							ID   string          `json:"id"`
							Name string          `json:"name"`
							Args json.RawMessage `json:"args"`
						} `json:"functionCall"`
					} `json:"parts"`
				} `json:"content"`
				Finish string `json:"finishReason"`
			} `json:"candidates"`
			Usage struct {
				In  int `json:"promptTokenCount"`
				Out int `json:"candidatesTokenCount"`
			} `json:"usageMetadata"`
		}
		decodeInto(t, p, &v)
		if done || len(v.Candidates) != 1 {
			t.Errorf("piece %s", p)
		}
		s.id = v.ID
		for _, part := range v.Candidates[0].Content.Parts {
			switch {
			case part.Call != nil:
				s.calls = append(s.calls, call{part.Call.ID, part.Call.Name, string(part.Call.Args)})
			case part.Thought:
				s.thought += part.Text
			default:
				s.text += part.Text
			}
		}
		if done = v.Candidates[0].Finish == "STOP"; done {
			s.in, s.out = v.Usage.In, v.Usage.Out
		}
	}
	return s, done
}

type sseEvent struct{ name, data string }

func events(t *testing.T, body string) []sseEvent {
	t.Helper()
	var all []sseEvent
	var e sseEvent
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			all, e = append(all, e), sseEvent{}
		}
	}
	return all
}

func decodeInto(t *testing.T, doc string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(doc), v); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
}
