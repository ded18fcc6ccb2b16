package agui

import (
	"encoding/json"

	"cofferdam.dev/pkg/event"
)

// interrupt is what a run has asked, and which agent of it.
type interrupt struct {
	event.InterruptRequested

	by string
}

// ids of the AG-UI interrupts: AG-UI asks for one tool call at a time.
func (i *interrupt) ids() []string {
	if len(i.ToolApprovals) < 2 {
		return []string{i.InterruptID}
	}
	ids := make([]string, len(i.ToolApprovals))
	for n, a := range i.ToolApprovals {
		ids[n] = i.InterruptID + "/" + a.ToolCallID
	}
	return ids
}

// SetRevision sets the revision that a resume must name. It is assigned when the
// interrupt is committed; unless it is set before run.interrupted is encoded, the
// interrupts have none.
func (e *Encoder) SetRevision(revision uint64) { e.revision = &revision }

// interrupted closes the arguments of the calls that wait, which get their result
// in the resumed run, restates what the client has, and asks.
func (e *Encoder) interrupted() {
	for _, it := range e.machine.OpenItems() {
		e.endCall(it.ID)
	}
	e.snapshots()
	e.finished(outcome{Type: outcomeInterrupt, Interrupts: e.questions()}, metadata{})
}

func (e *Encoder) questions() []interruptFrame {
	i := e.interrupt
	if i.InterruptType == event.InterruptFormInput {
		q := e.question(i, i.InterruptID)
		q.Message, q.ResponseSchema = i.Prompt, formSchema(i.Fields)
		q.Metadata["fields"] = i.Fields
		return []interruptFrame{q}
	}
	out := make([]interruptFrame, len(i.ToolApprovals))
	for n, id := range i.ids() {
		a := i.ToolApprovals[n]
		q := e.question(i, id)
		q.ToolCallID, q.ResponseSchema = e.callID(a.ToolCallID), decisionSchema(a.AllowedDecisions)
		q.Message = "May the tool " + a.ToolName + " be called?"
		q.Metadata["tool_call_id"], q.Metadata["tool_name"] = a.ToolCallID, a.ToolName
		q.Metadata["tool_args"], q.Metadata["allowed_decisions"] = a.ToolArgs, a.AllowedDecisions
		out[n] = q
	}
	return out
}

func (e *Encoder) question(i *interrupt, id string) interruptFrame {
	md := metadata{"interrupt_id": i.InterruptID, "interrupt_type": i.InterruptType, "agent_id": i.AgentID}
	if e.revision != nil {
		md["revision"] = *e.revision
	}
	return interruptFrame{SubagentRunID: i.by, ID: id, Reason: string(i.InterruptType.Reason()), Metadata: md}
}

// schema is the JSON Schema of an answer.
type schema struct {
	Type        string             `json:"type,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     json.RawMessage    `json:"default,omitempty"`
}

// formSchema describes the answer to a form. What type a value has is between the
// harness and who shows the form: field_type is an open word.
func formSchema(fields []event.FormField) *schema {
	s := &schema{Type: "object", Properties: make(map[string]*schema, len(fields))}
	for _, f := range fields {
		s.Properties[f.FieldName] = &schema{
			Title: f.FieldLabel, Description: f.FieldDescription, Enum: f.FieldValues, Default: json.RawMessage(f.DefaultValue),
		}
		if f.Required {
			s.Required = append(s.Required, f.FieldName)
		}
	}
	return s
}

func decisionSchema(allowed []event.Decision) *schema {
	s := &schema{Type: "object", Required: []string{"decision"}, Properties: map[string]*schema{"decision": {Type: "string"}}}
	for _, d := range allowed {
		s.Properties["decision"].Enum = append(s.Properties["decision"].Enum, string(d))
		if d == event.DecisionEdit {
			s.Properties["arguments"] = &schema{Type: "object"}
		}
	}
	return s
}
