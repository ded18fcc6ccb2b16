package agui

import (
	"encoding/json"
	"slices"
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

// entry is a message that may still grow. A result stands behind the message that
// made its call, and the results there.
type entry struct {
	message message
	text    *strings.Builder // nil: no content
	calls   []*callEntry
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
	it := &entry{message: m}
	if hasText {
		it.text = &strings.Builder{}
	}
	h.place(len(h.messages), it)
}

func (h *history) place(at int, it *entry) {
	if h.byID == nil {
		h.byID, h.calls = make(map[string]*entry), make(map[string]*callEntry)
	}
	h.byID[it.message.ID] = it
	h.messages = slices.Insert(h.messages, at, it)
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
	at := len(h.messages)
	if call := h.calls[m.ToolCallID]; call != nil {
		at = slices.Index(h.messages, call.owner) + 1
		for at < len(h.messages) && h.messages[at].message.Role == roleTool {
			at++
		}
	}
	h.place(at, it)
}

// carried reports that an entry is the result of a call that an earlier run opened.
func (h *history) carried(it *entry) bool {
	return it.message.Role == roleTool && h.calls[it.message.ToolCallID] == nil
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
	sent := make([]sentMessage, 0, len(e.client.Messages))
	for _, m := range e.client.Messages {
		if e.history.byID[m.ID] == nil { // a request that is repeated may bring messages of this run
			sent = append(sent, sentOf(m.raw))
			size += len(m.raw)
		}
	}
	if e.history.over || size > maxSnapshot {
		return nil, nil
	}
	var own []json.RawMessage
	for _, it := range e.history.messages {
		text, err := jsonline.Encode(it.whole())
		if err != nil {
			return nil, err
		}
		at := -1
		if e.history.carried(it) {
			at = slices.IndexFunc(sent, func(m sentMessage) bool { return slices.Contains(m.calls, it.message.ToolCallID) })
		}
		if at < 0 {
			own = append(own, text)
			continue
		}
		for at++; at < len(sent) && sent[at].role == roleTool; {
			at++
		}
		sent = slices.Insert(sent, at, sentMessage{raw: text, role: roleTool})
	}
	out := make([]json.RawMessage, 0, len(sent)+len(own))
	for _, m := range sent {
		out = append(out, m.raw)
	}
	return append(out, own...), nil
}

// sentMessage is a message of the client, and the calls that it carries.
type sentMessage struct {
	raw   json.RawMessage
	role  string
	calls []string
}

func sentOf(raw json.RawMessage) sentMessage {
	var m struct {
		Role      string     `json:"role"`
		ToolCalls []toolCall `json:"toolCalls"`
	}
	out := sentMessage{raw: raw}
	if json.Unmarshal(raw, &m) != nil { // what it is to the client is not known
		return out
	}
	out.role = m.Role
	for _, c := range m.ToolCalls {
		out.calls = append(out.calls, c.ID)
	}
	return out
}
