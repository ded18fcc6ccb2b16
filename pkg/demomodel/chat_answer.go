package demomodel

import (
	"net/http"
	"strings"
)

type chatUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func newChatUsage(u usage) *chatUsage {
	return &chatUsage{PromptTokens: u.in, CompletionTokens: u.out, TotalTokens: u.in + u.out}
}

// chatCompletion is a whole answer.
type chatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage"`
}

type chatChoice struct {
	Index        int        `json:"index"`
	Message      chatAnswer `json:"message"`
	FinishReason string     `json:"finish_reason"`
}

type chatAnswer struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCall `json:"tool_calls,omitempty"`
}

// chatChunk is one event of a streamed answer.
type chatChunk struct {
	ID      string            `json:"id"`
	Object  string            `json:"object"`
	Created int64             `json:"created"`
	Model   string            `json:"model"`
	Choices []chatChunkChoice `json:"choices"`
	Usage   *chatUsage        `json:"usage,omitempty"`
}

type chatChunkChoice struct {
	Index        int       `json:"index"`
	Delta        chatDelta `json:"delta"`
	FinishReason *string   `json:"finish_reason"`
}

type chatDelta struct {
	Role             string          `json:"role,omitempty"`
	Content          *string         `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCallDelta `json:"tool_calls,omitempty"`
}

// chatCallDelta is a piece of a tool call: first its id and name, then
// arguments.
type chatCallDelta struct {
	Index    int               `json:"index"`
	ID       string            `json:"id,omitempty"`
	Type     string            `json:"type,omitempty"`
	Function chatFunctionDelta `json:"function"`
}

type chatFunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func chatReason(asked bool) string {
	if asked {
		return "tool_calls"
	}
	return "stop"
}

// chatStream writes an answer as chunks, one a word.
type chatStream struct {
	sse       *sse
	head      chatChunk
	withUsage bool
}

func (s *chatStream) start(int) error {
	s.sse.open()
	empty := ""
	return s.delta(chatDelta{Role: "assistant", Content: &empty})
}

func (s *chatStream) say(piece string) error { return s.delta(chatDelta{Content: &piece}) }

func (s *chatStream) think(piece string) error { return s.delta(chatDelta{ReasoningContent: piece}) }

func (s *chatStream) call(n int, c toolCall) error {
	open := chatCallDelta{Index: n, ID: c.id, Type: "function", Function: chatFunctionDelta{Name: c.name}}
	if err := s.delta(chatDelta{ToolCalls: []chatCallDelta{open}}); err != nil {
		return err
	}
	for piece := range words(c.args) {
		more := chatCallDelta{Index: n, Function: chatFunctionDelta{Arguments: piece}}
		if err := s.delta(chatDelta{ToolCalls: []chatCallDelta{more}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *chatStream) finish(asked bool, u usage) error {
	reason := chatReason(asked)
	if err := s.send(chatChunkChoice{FinishReason: &reason}); err != nil {
		return err
	}
	if s.withUsage {
		last := s.head
		last.Choices, last.Usage = []chatChunkChoice{}, newChatUsage(u)
		if err := s.sse.data(last); err != nil {
			return err
		}
	}
	return s.sse.write("data: [DONE]\n\n")
}

// breakOff has nothing to add: what was said is flushed already.
func (s *chatStream) breakOff() {}

func (s *chatStream) delta(d chatDelta) error { return s.send(chatChunkChoice{Delta: d}) }

func (s *chatStream) send(c chatChunkChoice) error {
	next := s.head
	next.Choices = []chatChunkChoice{c}
	return s.sse.data(next)
}

// chatWhole gathers an answer and writes it as one JSON body.
type chatWhole struct {
	w       http.ResponseWriter
	head    chatCompletion
	text    strings.Builder
	thought strings.Builder
	calls   []chatCall
}

func (b *chatWhole) start(int) error { return nil }

func (b *chatWhole) say(piece string) error {
	b.text.WriteString(piece)
	return nil
}

func (b *chatWhole) think(piece string) error {
	b.thought.WriteString(piece)
	return nil
}

func (b *chatWhole) call(_ int, c toolCall) error {
	b.calls = append(b.calls, chatCall{ID: c.id, Type: "function", Function: chatFunction{Name: c.name, Arguments: c.args}})
	return nil
}

func (b *chatWhole) finish(asked bool, u usage) error {
	out := chatAnswer{Role: "assistant", ReasoningContent: b.thought.String(), ToolCalls: b.calls}
	if text := b.text.String(); text != "" || len(b.calls) == 0 {
		out.Content = &text
	}
	body := b.head
	body.Choices = []chatChoice{{Message: out, FinishReason: chatReason(asked)}}
	body.Usage = newChatUsage(u)
	writeJSON(b.w, http.StatusOK, body)
	return nil
}

func (b *chatWhole) breakOff() { breakBody(b.w, b.head.ID) }
