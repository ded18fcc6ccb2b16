package agui

import (
	"encoding/json"
	"strings"

	"cofferdam.dev/services/controlplane/internal/jsonline"
)

// Roles of messages.
const (
	roleAssistant = "assistant"
	roleReasoning = "reasoning"
	roleTool      = "tool"
	roleUser      = "user"
)

// maxSnapshot is the size of a snapshot in bytes. A client gives up at 10 MiB
// for one frame; one that would be larger is left out, since the client has
// built the same messages from the stream.
const maxSnapshot = 8 << 20

// messageOverhead stands for what a message has beside its text.
const messageOverhead = 256

// message of a conversation, as a client builds it from the stream.
type message struct {
	ID            string     `json:"id"`
	Role          string     `json:"role"`
	Content       *string    `json:"content,omitempty"`
	ToolCalls     []toolCall `json:"toolCalls,omitempty"`
	ToolCallID    string     `json:"toolCallId,omitempty"`
	SubagentRunID string     `json:"subagentRunId,omitempty"`
	Metadata      metadata   `json:"metadata,omitempty"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
	Metadata metadata `json:"metadata,omitempty"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// history has the messages of the run, for a snapshot, within its bound.
type history struct {
	size     int
	over     bool
	messages []*entry
	byID     map[string]*entry
	calls    map[string]*callEntry
}

// entry is a message that may still grow. Results stand right behind the message
// that made the calls, whenever they come.
type entry struct {
	message message
	text    *strings.Builder // nil: no content
	calls   []*callEntry
	results []*entry
}

type callEntry struct {
	call  toolCall
	args  strings.Builder
	owner *entry
}

// grow counts what is kept. It is false once that is too much.
func (h *history) grow(n int) bool {
	h.size += n
	if h.over || h.size > maxSnapshot {
		*h = history{over: true}
	}
	return !h.over
}

func (h *history) open(m message, hasText bool) {
	if !h.grow(len(m.ID) + messageOverhead) {
		return
	}
	if h.byID == nil {
		h.byID, h.calls = make(map[string]*entry), make(map[string]*callEntry)
	}
	it := &entry{message: m}
	if hasText {
		it.text = &strings.Builder{}
	}
	h.byID[m.ID] = it
	h.messages = append(h.messages, it)
}

func (h *history) write(id, delta string) {
	if h.grow(len(delta)) {
		h.byID[id].text.WriteString(delta)
	}
}

// call adds a tool call to its message. A client makes one with the id of the
// call where there is none.
func (h *history) call(parent, by string, c toolCall) {
	if h.byID[parent] == nil {
		parent = c.ID
		h.open(message{ID: parent, Role: roleAssistant, SubagentRunID: by}, false)
	}
	if !h.grow(len(c.ID) + len(c.Function.Name) + messageOverhead) {
		return
	}
	owner := h.byID[parent]
	it := &callEntry{call: c, owner: owner}
	owner.calls = append(owner.calls, it)
	h.calls[c.ID] = it
}

func (h *history) argue(id, delta string) {
	if h.grow(len(delta)) {
		h.calls[id].args.WriteString(delta)
	}
}

func (h *history) result(m message, content string) {
	if !h.grow(len(m.ID) + len(content) + messageOverhead) {
		return
	}
	it := &entry{message: m, text: &strings.Builder{}}
	it.text.WriteString(content)
	call := h.calls[m.ToolCallID]
	if call == nil { // its message is of an earlier run, which the client has
		h.messages = append(h.messages, it)
		return
	}
	h.byID[m.ID] = it
	call.owner.results = append(call.owner.results, it)
}

// lines are the messages as JSON, in the order in which a client has them.
func (h *history) lines() (out []json.RawMessage, err error) {
	for _, it := range h.messages {
		for _, each := range append([]*entry{it}, it.results...) {
			text, err := jsonline.Encode(each.whole())
			if err != nil {
				return nil, err
			}
			out = append(out, text)
		}
	}
	return out, nil
}

func (it *entry) whole() message {
	m := it.message
	if it.text != nil {
		content := it.text.String()
		m.Content = &content
	}
	for _, c := range it.calls {
		call := c.call
		call.Function.Arguments = c.args.String()
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return m
}

// snapshots restate the client's state, which is its own, and all messages.
func (e *Encoder) snapshots() {
	state := e.client.State
	if len(state) == 0 {
		state = json.RawMessage("{}")
	}
	e.put(stateFrame{base: e.base("STATE_SNAPSHOT", ""), Snapshot: state})
	messages, err := e.messages()
	if err != nil {
		e.failed = err
		return
	}
	if messages == nil {
		return
	}
	before := len(e.out)
	e.put(messagesFrame{base: e.base("MESSAGES_SNAPSHOT", ""), Messages: messages})
	if len(e.out) > before && len(e.out[before]) > maxSnapshot {
		e.out = e.out[:before]
	}
}

// messages are those that the client sent and those of the run; nil if they are
// too many.
func (e *Encoder) messages() ([]json.RawMessage, error) {
	size := 0
	out := make([]json.RawMessage, 0, len(e.client.Messages)+len(e.history.messages))
	for _, m := range e.client.Messages {
		if e.history.byID[m.ID] == nil { // a request that is repeated may bring messages of this run
			out = append(out, m.raw)
			size += len(m.raw)
		}
	}
	if e.history.over || size > maxSnapshot {
		return nil, nil
	}
	lines, err := e.history.lines()
	return append(out, lines...), err
}
