package agui

import (
	"encoding/json"
	"fmt"

	"cofferdam.dev/services/controlplane/internal/jsonline"
)

// metadata is open by key. An empty one is left out.
type metadata map[string]any

// base is what every AG-UI event has. No field of a frame is ever null.
type base struct {
	Type          string   `json:"type"`
	Timestamp     int64    `json:"timestamp"` // milliseconds
	Metadata      metadata `json:"metadata,omitempty"`
	SubagentRunID string   `json:"subagentRunId,omitempty"`
}

type runFrame struct {
	base

	ThreadID        string   `json:"threadId"`
	RunID           string   `json:"runId"`
	ProtocolVersion string   `json:"protocolVersion,omitempty"`
	Outcome         *outcome `json:"outcome,omitempty"`
	Usage           []usage  `json:"usage,omitempty"`
}

// outcome of a run or of a subagent.
type outcome struct {
	Type         string           `json:"type"`
	Interrupts   []interruptFrame `json:"interrupts,omitempty"`
	InterruptIDs []string         `json:"interruptIds,omitempty"`
}

type interruptFrame struct {
	SubagentRunID  string   `json:"subagentRunId,omitempty"`
	ID             string   `json:"id"`
	Reason         string   `json:"reason"`
	Message        string   `json:"message,omitempty"`
	ToolCallID     string   `json:"toolCallId,omitempty"`
	ResponseSchema *schema  `json:"responseSchema,omitempty"`
	Metadata       metadata `json:"metadata,omitempty"`
}

// usage counts tokens; a count that is not known is left out.
type usage struct {
	InputTokens       *uint64 `json:"inputTokens,omitempty"`
	OutputTokens      *uint64 `json:"outputTokens,omitempty"`
	CachedInputTokens *uint64 `json:"cachedInputTokens,omitempty"`
}

type errorFrame struct {
	base

	Message string  `json:"message"`
	Code    string  `json:"code,omitempty"`
	Usage   []usage `json:"usage,omitempty"`
}

// messageFrame opens, continues or closes a text or a piece of reasoning.
type messageFrame struct {
	base

	MessageID string `json:"messageId"`
	Role      string `json:"role,omitempty"`
	Delta     string `json:"delta,omitempty"`
}

type callFrame struct {
	base

	ToolCallID      string `json:"toolCallId"`
	ToolCallName    string `json:"toolCallName,omitempty"`
	ParentMessageID string `json:"parentMessageId,omitempty"`
	Delta           string `json:"delta,omitempty"`
}

type resultFrame struct {
	base

	MessageID  string `json:"messageId"`
	ToolCallID string `json:"toolCallId"`
	Content    string `json:"content"`
	Role       string `json:"role"`
}

type agentFrame struct {
	base

	Name                string   `json:"name,omitempty"`
	ParentSubagentRunID string   `json:"parentSubagentRunId,omitempty"`
	ParentToolCallID    string   `json:"parentToolCallId,omitempty"`
	Outcome             *outcome `json:"outcome,omitempty"`
	Message             string   `json:"message,omitempty"`
	Code                string   `json:"code,omitempty"`
}

type customFrame struct {
	base

	Name  string `json:"name"`
	Value any    `json:"value"`
}

type stateFrame struct {
	base

	Snapshot json.RawMessage `json:"snapshot"`
}

type messagesFrame struct {
	base

	Messages []json.RawMessage `json:"messages"`
}

func (e *Encoder) base(kind, by string) base {
	return base{Type: kind, Timestamp: e.at, SubagentRunID: by}
}

// put adds a frame to what the event gives.
func (e *Encoder) put(frame any) {
	text, err := jsonline.Encode(frame)
	if err != nil {
		e.failed = fmt.Errorf("agui: encode: %w", err)
		return
	}
	e.out = append(e.out, text)
}
