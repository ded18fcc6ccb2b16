package agui

import (
	"encoding/json"
	"strings"

	"cofferdam.dev/pkg/event"
)

// call is an open tool call.
type call struct {
	name   string
	by     string // agent
	parent string // AG-UI id of the message that carries it
	args   prefix
}

func (e *Encoder) toolStarted(by string, p event.ToolStarted) {
	c := &call{name: p.ToolName, by: by}
	// A call belongs to whom its message belongs to, and a message that is not
	// there would be made up by the client.
	if owner, there := e.texts[p.ParentMessageID]; there && owner == by {
		c.parent = e.ids.text(p.ParentMessageID)
	}
	e.calls[p.ToolCallID] = c
	e.startCall(c, p.ToolCallID)
	e.history.call(c.parent, by, toolCall{
		ID: e.callID(p.ToolCallID), Type: "function", Function: function{Name: p.ToolName},
		Metadata: metadata{"tool_call_id": p.ToolCallID},
	})
	if !empty(p.Arguments) {
		e.arguments(c, p.ToolCallID, c.args.take(string(p.Arguments)))
	}
}

func (e *Encoder) startCall(c *call, id string) {
	f := callFrame{
		base: e.base("TOOL_CALL_START", c.by), ToolCallID: e.callID(id), ToolCallName: c.name, ParentMessageID: c.parent,
	}
	f.Metadata = metadata{"tool_call_id": id}
	e.put(f)
}

func (e *Encoder) toolArguments(p event.ToolArgumentsDelta) {
	c := e.calls[p.ToolCallID]
	e.arguments(c, p.ToolCallID, c.args.take(p.Delta))
}

func (e *Encoder) arguments(c *call, id, delta string) {
	if delta == "" {
		return
	}
	e.put(callFrame{base: e.base("TOOL_CALL_ARGS", c.by), ToolCallID: e.callID(id), Delta: delta})
	e.history.argue(e.callID(id), delta)
}

// endCall closes a call's arguments; its result is another matter.
func (e *Encoder) endCall(id string) {
	c := e.calls[id]
	if c == nil { // it was carried over: its end came with the question
		return
	}
	e.arguments(c, id, c.args.rest())
	e.put(callFrame{base: e.base("TOOL_CALL_END", c.by), ToolCallID: e.callID(id)})
	delete(e.calls, id)
}

func (e *Encoder) toolFinished(by string, p event.ToolFinished) {
	var md metadata
	if p.ResultRef != "" {
		md = metadata{"result_ref": p.ResultRef}
	}
	e.endCall(p.ToolCallID)
	e.result(by, p.ToolCallID, text(p.Result), md)
}

func (e *Encoder) toolError(by string, p event.ToolError) {
	e.endCall(p.ToolCallID)
	e.result(by, p.ToolCallID, "Error "+p.Code+": "+p.Message, metadata{
		"error": metadata{"code": p.Code, "message": p.Message, "retryable": p.Retryable},
	})
}

func (e *Encoder) result(by, id, content string, md metadata) {
	f := resultFrame{
		base: e.base("TOOL_CALL_RESULT", by), MessageID: e.ids.result(id), ToolCallID: e.callID(id), Content: content, Role: roleTool,
	}
	f.Metadata = md
	e.put(f)
	e.history.result(message{ID: f.MessageID, Role: roleTool, ToolCallID: f.ToolCallID, SubagentRunID: by, Metadata: md}, content)
}

// text is a result as AG-UI wants it: a string.
func text(v event.Value) string {
	var s string
	if strings.HasPrefix(string(v), `"`) && json.Unmarshal([]byte(v), &s) == nil {
		return s
	}
	return string(v)
}

// empty reports whether arguments are those that may still stream.
func empty(o event.Object) bool { return strings.Join(strings.Fields(string(o)), "") == "{}" }
