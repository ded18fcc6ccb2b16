package acp

import (
	"encoding/json"
	"errors"
	"strings"

	"cofferdam.dev/pkg/event"
)

// updateKind is what an update is about, as far as it matters here.
type updateKind int

const (
	updateOther updateKind = iota // plans, commands, modes, usage, and what comes later
	updateText
	updateThought
	updateCall
)

// update is one session/update.
type update struct {
	kind updateKind
	// text of a chunk, and the message that it belongs to where the agent says so.
	text, message string
	report        report
}

// report is what an agent tells of a tool call, in whichever of tool_call,
// tool_call_update and session/request_permission. What it does not tell is
// empty.
type report struct {
	key string // the agent's id of the call
	// opens says that it came as a tool_call: an id that is new is a new call.
	opens bool
	// asks says that it came as a question.
	asks                bool
	title, kind, status string
	name                string // of the tool, where the agent says it apart
	input               json.RawMessage
	output              string // text, else JSON
	outputJSON          json.RawMessage
	// more is what a terminal of the agent has shown since the report before.
	more string
}

const (
	maxCallKey   = 256
	maxTitle     = 1 << 10
	maxSearched  = 32
	kindExecute  = "execute"
	statusQueued = "pending"
	statusRuns   = "in_progress"
	statusDone   = "completed"
	statusFailed = "failed"
)

var errUpdate = errors.New("not a session update")

// decodeUpdate reads the params of session/update. What is odd in a single field
// is left out; what is no update at all is an error.
func decodeUpdate(params json.RawMessage) (session string, u update, err error) {
	var n struct {
		SessionID string                     `json:"sessionId"`
		Update    map[string]json.RawMessage `json:"update"`
	}
	if json.Unmarshal(params, &n) != nil || n.Update == nil {
		return "", update{}, errUpdate
	}
	var kind string
	if json.Unmarshal(n.Update["sessionUpdate"], &kind) != nil {
		return "", update{}, errUpdate
	}
	switch kind {
	case "agent_message_chunk", "agent_thought_chunk":
		u.kind = updateText
		if kind == "agent_thought_chunk" {
			u.kind = updateThought
		}
		u.text, u.message = blockText(n.Update["content"]), stringOf(n.Update["messageId"])
	case "tool_call", "tool_call_update":
		u.kind = updateCall
		u.report = reportOf(n.Update)
		u.report.opens = kind == "tool_call"
		if u.report.key == "" {
			return "", update{}, errUpdate
		}
	}
	return n.SessionID, u, nil
}

// decodePermission reads what matters here of session/request_permission.
func decodePermission(params json.RawMessage) (session string, r report, err error) {
	var n struct {
		SessionID string                     `json:"sessionId"`
		ToolCall  map[string]json.RawMessage `json:"toolCall"`
	}
	if json.Unmarshal(params, &n) != nil || n.ToolCall == nil {
		return "", report{}, errUpdate
	}
	if r = reportOf(n.ToolCall); r.key == "" {
		return "", report{}, errUpdate
	}
	r.asks = true
	return n.SessionID, r, nil
}

func reportOf(m map[string]json.RawMessage) report {
	r := report{
		title: clean(stringOf(m["title"]), maxTitle), kind: stringOf(m["kind"]), status: stringOf(m["status"]),
		name: clean(nameIn(m["_meta"]), maxTitle), input: present(m["rawInput"]),
	}
	if key := stringOf(m["toolCallId"]); len(key) <= maxCallKey {
		r.key = key
	}
	type terminal struct {
		Data string `json:"data"`
	}
	var meta struct {
		Whole terminal `json:"terminal_output"`
		Delta terminal `json:"terminal_output_delta"`
	}
	if json.Unmarshal(m["_meta"], &meta) == nil {
		r.more = meta.Whole.Data + meta.Delta.Data // an agent sends either
	}
	r.output = contentText(m["content"])
	if r.output == "" {
		if raw := present(m["rawOutput"]); stringOf(raw) != "" {
			r.output = stringOf(raw)
		} else {
			r.outputJSON = raw
		}
	}
	return r
}

func clean(s string, most int) string { return event.Truncate(event.SanitizeText(s), most) }

func present(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// stringOf is a string, or "" for anything else.
func stringOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// blockText is the text of a content block; other blocks have none.
func blockText(raw json.RawMessage) string {
	var b struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &b) != nil || b.Type != "text" {
		return ""
	}
	return b.Text
}

// contentText is the text of what a tool call shows.
func contentText(raw json.RawMessage) string {
	var items []struct {
		Type    string          `json:"type"`
		Content json.RawMessage `json:"content"`
		Path    string          `json:"path"`
	}
	if json.Unmarshal(raw, &items) != nil {
		return ""
	}
	var text strings.Builder
	for _, item := range items {
		switch item.Type {
		case "content":
			text.WriteString(blockText(item.Content))
		case "diff":
			text.WriteString("changed " + item.Path + "\n")
		}
		if text.Len() > event.MaxResultBytes {
			break
		}
	}
	return text.String()
}

// nameIn is a tool's own name in the metadata of an agent, such as
// {"claudeCode": {"toolName": "Bash"}}.
func nameIn(meta json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(meta, &members) != nil || len(members) > maxSearched {
		return ""
	}
	if name := stringOf(members["toolName"]); name != "" {
		return name
	}
	name := ""
	for _, below := range members {
		var inner struct {
			ToolName string `json:"toolName"`
		}
		// Two that differ say nothing, whatever the order is in which they are read.
		if json.Unmarshal(below, &inner) == nil && inner.ToolName != "" {
			if name != "" && name != inner.ToolName {
				return ""
			}
			name = inner.ToolName
		}
	}
	return name
}
