package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
)

// reply is what a model says, free of any wire.
type reply struct {
	reasoning string
	text      string
	calls     []called
	stop      string
	// input, output and cached tokens; -1 is not told.
	input, output, cached int
}

type called struct{ name, args string }

// asked is what a model was asked, free of any wire.
type asked struct {
	model, system string
	maxTokens     int
	tools         []string
	schema        string
	// turns are role, kind and content, in order.
	turns []string
}

// wire plays a model on one wire, in the public format of that wire.
type wire struct {
	name   harness.Wire
	stream func(reply) []byte
	// terminal is how many events at the end of a stream make it whole.
	terminal int
	read     func([]byte) (asked, error)
}

func wires() []wire { return []wire{chatWire(), responsesWire(), anthropicWire()} }

// sse is one event; name is "" where the wire has none.
func sse(name string, data any) []byte {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	if name == "" {
		return []byte("data: " + string(raw) + "\n\n")
	}
	return []byte("event: " + name + "\ndata: " + string(raw) + "\n\n")
}

type obj = map[string]any

// halves of a text: what is streamed comes in pieces.
func halves(s string) []string {
	if len(s) < 2 {
		return []string{s}
	}
	cut := len(s) / 2
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return []string{s[:cut], s[cut:]}
}

func chatWire() wire {
	return wire{name: harness.WireOpenAIChat, terminal: 3, stream: func(r reply) []byte {
		var b bytes.Buffer
		chunk := func(delta obj, finish any) {
			b.Write(sse("", obj{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []obj{{"index": 0, "delta": delta, "finish_reason": finish}}}))
		}
		chunk(obj{"role": "assistant", "content": ""}, nil)
		if r.reasoning != "" {
			for _, h := range halves(r.reasoning) {
				chunk(obj{"reasoning_content": h}, nil)
			}
		}
		if r.text != "" {
			for _, h := range halves(r.text) {
				chunk(obj{"content": h}, nil)
			}
		}
		for i, c := range r.calls {
			chunk(obj{"tool_calls": []obj{{"index": i, "id": fmt.Sprint("call_", i), "type": "function", "function": obj{"name": c.name, "arguments": ""}}}}, nil)
			for _, h := range halves(c.args) {
				chunk(obj{"tool_calls": []obj{{"index": i, "function": obj{"arguments": h}}}}, nil)
			}
		}
		chunk(obj{}, r.stop)
		if r.input > 0 {
			u := obj{"prompt_tokens": r.input, "completion_tokens": r.output, "total_tokens": r.input + r.output}
			if r.cached > 0 {
				u["prompt_tokens_details"] = obj{"cached_tokens": r.cached}
			}
			b.Write(sse("", obj{"id": "c", "object": "chat.completion.chunk", "choices": []obj{}, "usage": u}))
		}
		b.WriteString("data: [DONE]\n\n")
		return b.Bytes()
	}, read: readChat}
}

func readChat(raw []byte) (asked, error) {
	var in struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_completion_tokens"`
		Messages  []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
			ToolCalls  []struct {
				Function struct{ Name, Arguments string } `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return asked{}, err
	}
	out := asked{model: in.Model, maxTokens: in.MaxTokens}
	for _, t := range in.Tools {
		out.tools = append(out.tools, t.Function.Name)
		out.schema += string(t.Function.Parameters)
	}
	for _, m := range in.Messages {
		if m.Role == "system" {
			out.system = contentText(m.Content)
			continue
		}
		if m.Role == "tool" {
			out.turns = append(out.turns, "result "+contentText(m.Content))
			continue
		}
		out.turns = append(out.turns, contentParts(m.Role, m.Content)...)
		for _, c := range m.ToolCalls {
			out.turns = append(out.turns, "call "+c.Function.Name+" "+c.Function.Arguments)
		}
	}
	return out, nil
}

func contentText(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// contentParts reads the content of a message, text or parts of any OpenAI wire.
func contentParts(role string, raw json.RawMessage) []string {
	if s := contentText(raw); s != "" {
		return []string{role + " " + s}
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		ImageURL json.RawMessage `json:"image_url"`
		File     struct {
			FileData string `json:"file_data"`
		} `json:"file"`
		FileData string `json:"file_data"`
	}
	_ = json.Unmarshal(raw, &parts)
	var out []string
	for _, p := range parts {
		url := contentText(p.ImageURL)
		var nested struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(p.ImageURL, &nested) == nil {
			url = nested.URL
		}
		switch {
		case url != "":
			out = append(out, "image "+url)
		case p.File.FileData+p.FileData != "":
			out = append(out, "document "+p.File.FileData+p.FileData)
		default:
			out = append(out, role+" "+p.Text)
		}
	}
	return out
}

func responsesWire() wire {
	return wire{name: harness.WireOpenAIResponses, terminal: 1, stream: func(r reply) []byte {
		var b bytes.Buffer
		seq := 0
		ev := func(name string, o obj) {
			o["type"], o["sequence_number"] = name, seq
			seq++
			b.Write(sse(name, o))
		}
		base := func(status string) obj {
			return obj{"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": []obj{}, "error": nil, "incomplete_details": nil, "usage": nil}
		}
		ev("response.created", obj{"response": base("in_progress")})
		at := 0
		if r.reasoning != "" {
			item := obj{"type": "reasoning", "id": "rs_1", "summary": []obj{}}
			ev("response.output_item.added", obj{"output_index": at, "item": item})
			ev("response.reasoning_summary_part.added", obj{"item_id": "rs_1", "output_index": at, "summary_index": 0, "part": obj{"type": "summary_text", "text": ""}})
			for _, h := range halves(r.reasoning) {
				ev("response.reasoning_summary_text.delta", obj{"item_id": "rs_1", "output_index": at, "summary_index": 0, "delta": h})
			}
			ev("response.output_item.done", obj{"output_index": at, "item": obj{"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed-thought", "summary": []obj{{"type": "summary_text", "text": r.reasoning}}}})
			at++
		}
		if r.text != "" {
			ev("response.output_item.added", obj{"output_index": at, "item": obj{"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []obj{}}})
			for _, h := range halves(r.text) {
				ev("response.output_text.delta", obj{"item_id": "msg_1", "output_index": at, "content_index": 0, "delta": h})
			}
			ev("response.output_text.done", obj{"item_id": "msg_1", "output_index": at, "content_index": 0, "text": r.text})
			at++
		}
		for i, c := range r.calls {
			id := fmt.Sprint("fc_", i)
			item := obj{"type": "function_call", "id": id, "call_id": fmt.Sprint("call_", i), "name": c.name, "arguments": "", "status": "in_progress"}
			ev("response.output_item.added", obj{"output_index": at, "item": item})
			for _, h := range halves(c.args) {
				ev("response.function_call_arguments.delta", obj{"item_id": id, "output_index": at, "delta": h})
			}
			ev("response.function_call_arguments.done", obj{"item_id": id, "output_index": at, "arguments": c.args})
			at++
		}
		last, name := base("completed"), "response.completed"
		if r.stop == "length" {
			last, name = base("incomplete"), "response.incomplete"
			last["incomplete_details"] = obj{"reason": "max_output_tokens"}
		}
		if r.input > 0 {
			u := obj{"input_tokens": r.input, "output_tokens": r.output, "total_tokens": r.input + r.output}
			if r.cached > 0 {
				u["input_tokens_details"] = obj{"cached_tokens": r.cached}
			}
			last["usage"] = u
		}
		ev(name, obj{"response": last})
		return b.Bytes()
	}, read: readResponses}
}

func readResponses(raw []byte) (asked, error) {
	var in struct {
		Model        string `json:"model"`
		Instructions string `json:"instructions"`
		MaxTokens    int    `json:"max_output_tokens"`
		Store        *bool  `json:"store"`
		Input        []struct {
			Type      string          `json:"type"`
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			Name      string          `json:"name"`
			Arguments string          `json:"arguments"`
			Output    string          `json:"output"`
			Encrypted string          `json:"encrypted_content"`
		} `json:"input"`
		Tools []struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return asked{}, err
	}
	if in.Store == nil || *in.Store {
		return asked{}, fmt.Errorf("the provider is asked to store: %s", raw)
	}
	out := asked{model: in.Model, system: in.Instructions, maxTokens: in.MaxTokens}
	for _, t := range in.Tools {
		out.tools = append(out.tools, t.Name)
		out.schema += string(t.Parameters)
	}
	for _, m := range in.Input {
		switch m.Type {
		case "function_call":
			out.turns = append(out.turns, "call "+m.Name+" "+m.Arguments)
		case "function_call_output":
			out.turns = append(out.turns, "result "+m.Output)
		case "reasoning":
			out.turns = append(out.turns, "sealed "+m.Encrypted)
		default:
			out.turns = append(out.turns, contentParts(m.Role, m.Content)...)
		}
	}
	return out, nil
}

func anthropicWire() wire {
	return wire{name: harness.WireAnthropicMessages, terminal: 1, stream: func(r reply) []byte {
		var b bytes.Buffer
		ev := func(name string, o obj) {
			o["type"] = name
			b.Write(sse(name, o))
		}
		usage := obj{}
		if r.input > 0 {
			usage = obj{"input_tokens": r.input - max(r.cached, 0), "output_tokens": 1}
			if r.cached > 0 {
				usage["cache_read_input_tokens"] = r.cached
			}
		}
		ev("message_start", obj{"message": obj{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []obj{}, "stop_reason": nil, "usage": usage}})
		ev("ping", obj{})
		at := 0
		block := func(start obj, deltas ...obj) {
			ev("content_block_start", obj{"index": at, "content_block": start})
			for _, d := range deltas {
				ev("content_block_delta", obj{"index": at, "delta": d})
			}
			ev("content_block_stop", obj{"index": at})
			at++
		}
		pieces := func(kind, field, s string) []obj {
			var out []obj
			for _, h := range halves(s) {
				out = append(out, obj{"type": kind, field: h})
			}
			return out
		}
		if r.reasoning != "" {
			deltas := append(pieces("thinking_delta", "thinking", r.reasoning), obj{"type": "signature_delta", "signature": "sealed-"}, obj{"type": "signature_delta", "signature": "thought"})
			block(obj{"type": "thinking", "thinking": "", "signature": ""}, deltas...)
		}
		if r.text != "" {
			block(obj{"type": "text", "text": ""}, pieces("text_delta", "text", r.text)...)
		}
		for i, c := range r.calls {
			block(obj{"type": "tool_use", "id": fmt.Sprint("toolu_", i), "name": c.name, "input": obj{}}, pieces("input_json_delta", "partial_json", c.args)...)
		}
		stop := map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}[r.stop]
		delta := obj{"delta": obj{"stop_reason": stop, "stop_sequence": nil}}
		if r.input > 0 {
			delta["usage"] = obj{"output_tokens": r.output}
		}
		ev("message_delta", delta)
		ev("message_stop", obj{})
		return b.Bytes()
	}, read: readAnthropic}
}

func readAnthropic(raw []byte) (asked, error) {
	type source struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	var in struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
		System    []struct {
			Text string `json:"text"`
		} `json:"system"`
		Messages []struct {
			Role    string `json:"role"`
			Content []struct {
				Type      string          `json:"type"`
				Text      string          `json:"text"`
				Name      string          `json:"name"`
				Input     json.RawMessage `json:"input"`
				Signature string          `json:"signature"`
				Source    source          `json:"source"`
				Content   []struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return asked{}, err
	}
	out := asked{model: in.Model, maxTokens: in.MaxTokens}
	for _, s := range in.System {
		out.system += s.Text
	}
	for _, t := range in.Tools {
		out.tools = append(out.tools, t.Name)
		out.schema += string(t.InputSchema)
	}
	for _, m := range in.Messages {
		for _, c := range m.Content {
			switch c.Type {
			case "tool_use":
				out.turns = append(out.turns, "call "+c.Name+" "+string(c.Input))
			case "tool_result":
				text := ""
				for _, p := range c.Content {
					text += p.Text
				}
				out.turns = append(out.turns, "result "+text)
			case "thinking":
				out.turns = append(out.turns, "sealed "+c.Signature)
			case "image", "document":
				out.turns = append(out.turns, c.Type+" data:"+c.Source.MediaType+";base64,"+c.Source.Data)
			default:
				out.turns = append(out.turns, m.Role+" "+c.Text)
			}
		}
	}
	return out, nil
}

// says plays a reply on a wire.
func (w wire) says(r reply) answers {
	return func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/event-stream")
		_, _ = out.Write(w.stream(r))
	}
}

// cut plays a reply without its terminal.
func (w wire) cut(r reply) answers {
	return func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/event-stream")
		all := bytes.SplitAfter(w.stream(r), []byte("\n\n"))
		all = all[:len(all)-1] // what comes after the last
		_, _ = out.Write(bytes.Join(all[:len(all)-w.terminal], nil))
	}
}

// asked gives what the model was asked last.
func (s *stand) asked(t *testing.T, w wire) asked {
	t.Helper()
	all := s.model.asked()
	if len(all) == 0 {
		t.Fatal("the model was not asked")
	}
	out, err := w.read([]byte(all[len(all)-1].raw))
	must(t, err)
	return out
}

func on(w wire, change ...func(*harness.Construction)) []func(*harness.Construction) {
	return slices.Concat([]func(*harness.Construction){func(c *harness.Construction) { c.Model.Wire = w.name }}, change)
}

func eachWire(t *testing.T, do func(*testing.T, wire)) {
	t.Helper()
	for _, w := range wires() {
		t.Run(strings.ReplaceAll(string(w.name), "_", " "), func(t *testing.T) { do(t, w) })
	}
}
