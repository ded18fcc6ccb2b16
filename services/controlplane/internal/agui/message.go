package agui

import (
	"encoding/json"

	"cofferdam.dev/pkg/event"
)

func (e *Encoder) textStarted(by string, p event.TextStarted) {
	e.texts[p.MessageID] = by
	e.startText(by, p.MessageID)
	e.history.open(message{
		ID: e.ids.text(p.MessageID), Role: roleAssistant, SubagentRunID: by, Metadata: metadata{"message_id": p.MessageID},
	}, true)
}

func (e *Encoder) startText(by, id string) {
	f := messageFrame{base: e.base("TEXT_MESSAGE_START", by), MessageID: e.ids.text(id), Role: roleAssistant}
	f.Metadata = metadata{"message_id": id}
	e.put(f)
}

func (e *Encoder) textDelta(by string, p event.TextDelta) {
	id := e.ids.text(p.MessageID)
	e.put(messageFrame{base: e.base("TEXT_MESSAGE_CONTENT", by), MessageID: id, Delta: p.Delta})
	e.history.write(id, p.Delta)
}

func (e *Encoder) reasoningStarted(by string, p event.ReasoningStarted) {
	e.startReasoning(by, p.MessageID)
	e.history.open(message{
		ID: e.ids.reasoning(p.MessageID), Role: roleReasoning, SubagentRunID: by, Metadata: metadata{"message_id": p.MessageID},
	}, true)
}

// startReasoning opens a span with one message in it. They may share their id.
func (e *Encoder) startReasoning(by, id string) {
	e.put(messageFrame{base: e.base("REASONING_START", by), MessageID: e.ids.reasoning(id)})
	f := messageFrame{base: e.base("REASONING_MESSAGE_START", by), MessageID: e.ids.reasoning(id), Role: roleReasoning}
	f.Metadata = metadata{"message_id": id}
	e.put(f)
}

func (e *Encoder) reasoningDelta(by string, p event.ReasoningDelta) {
	id := e.ids.reasoning(p.MessageID)
	e.put(messageFrame{base: e.base("REASONING_MESSAGE_CONTENT", by), MessageID: id, Delta: p.Delta})
	e.history.write(id, p.Delta)
}

func (e *Encoder) reasoningFinished(by string, p event.ReasoningFinished) {
	id := e.ids.reasoning(p.MessageID)
	e.put(messageFrame{base: e.base("REASONING_MESSAGE_END", by), MessageID: id})
	e.put(messageFrame{base: e.base("REASONING_END", by), MessageID: id})
}

// warningValue is the value of the custom event WARNING.
type warningValue struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitempty"`
}

func (e *Encoder) warning(by string, p event.Warning) {
	e.put(customFrame{base: e.base("CUSTOM", by), Name: "WARNING", Value: warningValue{
		Code: p.Code, Message: p.Message, Details: json.RawMessage(p.Details),
	}})
}
