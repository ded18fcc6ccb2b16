package demomodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// messagesBody is an answer, or the beginning of one.
type messagesBody struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"`
	Role         string        `json:"role"`
	Model        string        `json:"model"`
	Content      []any         `json:"content"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	Usage        messagesUsage `json:"usage"`
}

type messagesUsage struct {
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// signature stands where the provider signs what it thought.
const signature = "ZGVtbw=="

// messagesEvent is one event of a stream; which fields count depends on its
// type.
type messagesEvent struct {
	Type         string         `json:"type"`
	Message      *messagesBody  `json:"message,omitempty"`
	Index        *int           `json:"index,omitempty"`
	ContentBlock any            `json:"content_block,omitempty"`
	Delta        any            `json:"delta,omitempty"`
	Usage        *messagesUsage `json:"usage,omitempty"`
}

type textDelta struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingDelta struct {
	Type     string `json:"type"`
	Thinking string `json:"thinking"`
}

type signatureDelta struct {
	Type      string `json:"type"`
	Signature string `json:"signature"`
}

type inputDelta struct {
	Type string `json:"type"`
	JSON string `json:"partial_json"`
}

type stopDelta struct {
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

// messagesAnswer builds an answer block by block. With sse it tells each step as
// an event; otherwise it writes the whole at the end.
type messagesAnswer struct {
	w    http.ResponseWriter
	sse  *sse
	body messagesBody
	open string          // the kind of block that goes on: "", text or thinking
	text strings.Builder // of it
}

func (a *messagesAnswer) event(e messagesEvent) error {
	if a.sse == nil {
		return nil
	}
	return a.sse.named(e.Type, e)
}

func (a *messagesAnswer) start(in int) error {
	a.body.Usage.InputTokens = in
	if a.sse != nil {
		a.sse.open()
	}
	body := a.body
	return a.event(messagesEvent{Type: "message_start", Message: &body})
}

func (a *messagesAnswer) say(piece string) error {
	if err := a.ensure("text", textBlock{Type: "text"}); err != nil {
		return err
	}
	return a.delta(piece, textDelta{"text_delta", piece})
}

func (a *messagesAnswer) think(piece string) error {
	if err := a.ensure("thinking", thinkingBlock{Type: "thinking"}); err != nil {
		return err
	}
	return a.delta(piece, thinkingDelta{"thinking_delta", piece})
}

// ensure opens a block of a kind, unless it goes on already.
func (a *messagesAnswer) ensure(kind string, empty any) error {
	if a.open == kind {
		return nil
	}
	if err := a.close(); err != nil {
		return err
	}
	a.open = kind
	return a.begin(empty)
}

func (a *messagesAnswer) begin(empty any) error {
	index := len(a.body.Content)
	return a.event(messagesEvent{Type: "content_block_start", Index: &index, ContentBlock: empty})
}

func (a *messagesAnswer) delta(text string, d any) error {
	index := len(a.body.Content)
	a.text.WriteString(text)
	return a.event(messagesEvent{Type: "content_block_delta", Index: &index, Delta: d})
}

// close ends the block that goes on, if there is one.
func (a *messagesAnswer) close() error {
	var done any
	switch a.open {
	case "":
		return nil
	case "thinking":
		if err := a.delta("", signatureDelta{"signature_delta", signature}); err != nil {
			return err
		}
		done = thinkingBlock{Type: "thinking", Thinking: a.text.String(), Signature: signature}
	default:
		done = textBlock{Type: "text", Text: a.text.String()}
	}
	a.open = ""
	a.text.Reset()
	return a.end(done)
}

func (a *messagesAnswer) end(done any) error {
	index := len(a.body.Content)
	a.body.Content = append(a.body.Content, done)
	return a.event(messagesEvent{Type: "content_block_stop", Index: &index})
}

func (a *messagesAnswer) call(_ int, c toolCall) error {
	if err := a.close(); err != nil {
		return err
	}
	use := toolUseBlock{Type: "tool_use", ID: c.id, Name: c.name, Input: json.RawMessage("{}")}
	if err := a.begin(use); err != nil {
		return err
	}
	for piece := range words(c.args) {
		if err := a.delta("", inputDelta{"input_json_delta", piece}); err != nil {
			return err
		}
	}
	use.Input = json.RawMessage(c.args)
	return a.end(use)
}

func (a *messagesAnswer) finish(asked bool, u usage) error {
	if err := a.close(); err != nil {
		return err
	}
	reason := "end_turn"
	if asked {
		reason = "tool_use"
	}
	a.body.StopReason, a.body.Usage = &reason, messagesUsage{InputTokens: u.in, OutputTokens: u.out}
	if a.sse == nil {
		writeJSON(a.w, http.StatusOK, a.body)
		return nil
	}
	if err := a.event(messagesEvent{Type: "message_delta", Delta: stopDelta{StopReason: reason}, Usage: &a.body.Usage}); err != nil {
		return err
	}
	return a.event(messagesEvent{Type: "message_stop"})
}

func (a *messagesAnswer) breakOff() {
	if a.sse == nil {
		breakBody(a.w, a.body.ID)
	}
}
