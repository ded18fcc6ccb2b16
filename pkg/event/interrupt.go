package event

import (
	"fmt"
	"slices"
	"strings"
)

// InterruptType says what kind of answer an interrupt wants.
type InterruptType string

// The types of interrupts.
const (
	InterruptFormInput    InterruptType = "form_input"
	InterruptToolApproval InterruptType = "tool_approval"
)

// Reason is how a run that waits for such an interrupt ends.
func (t InterruptType) Reason() InterruptReason {
	if t == InterruptFormInput {
		return InterruptedForHumanInput
	}
	return InterruptedForToolApproval
}

// InterruptRequested asks a person. Only closing events and run.interrupted, or
// the end of the run by error or cancel, may follow it.
type InterruptRequested struct {
	InterruptID   string        `json:"interrupt_id"`
	InterruptType InterruptType `json:"interrupt_type"`
	AgentID       string        `json:"agent_id"`
	// Prompt and Fields are the form; form_input only.
	Prompt string      `json:"prompt,omitempty"`
	Fields []FormField `json:"fields,omitempty"`
	// ToolApprovals are the calls to decide on; tool_approval only.
	ToolApprovals []ToolApproval `json:"tool_approvals,omitempty"`
}

// Type is interrupt.requested.
func (InterruptRequested) Type() Type { return TypeInterruptRequested }

func (d InterruptRequested) check(c *checker) {
	c.id("interrupt_id", d.InterruptID)
	c.id("agent_id", d.AgentID)
	form, approval := d.Prompt != "" || len(d.Fields) > 0, len(d.ToolApprovals) > 0
	switch {
	case d.InterruptType == InterruptFormInput && !approval:
		d.checkForm(c)
	case d.InterruptType == InterruptToolApproval && !form:
		d.checkApprovals(c)
	case d.InterruptType == InterruptFormInput, d.InterruptType == InterruptToolApproval:
		c.fail("interrupt_type", "an interrupt is either a form or a tool approval")
	default:
		c.fail("interrupt_type", notOneOf)
	}
}

func (d InterruptRequested) checkForm(c *checker) {
	c.text("prompt", d.Prompt, MaxPromptBytes)
	c.count("fields", len(d.Fields), MaxFormFields)
	for i, f := range d.Fields {
		if c.err != nil {
			return
		}
		f.check(c, fmt.Sprintf("fields.%d.", i))
		// The answer is an object with these keys, where keys that differ only in
		// case are refused.
		if slices.ContainsFunc(d.Fields[:i], func(g FormField) bool { return strings.EqualFold(f.FieldName, g.FieldName) }) {
			c.fail("fields", "two fields have the same name")
		}
	}
}

func (d InterruptRequested) checkApprovals(c *checker) {
	c.count("tool_approvals", len(d.ToolApprovals), MaxOpenTools)
	for i, a := range d.ToolApprovals {
		if c.err != nil {
			return
		}
		a.check(c, fmt.Sprintf("tool_approvals.%d.", i))
		if slices.ContainsFunc(d.ToolApprovals[:i], func(b ToolApproval) bool { return a.ToolCallID == b.ToolCallID }) {
			c.fail("tool_approvals", "two approvals name the same tool call")
		}
	}
}

// FormField is one field of a form.
type FormField struct {
	FieldName        string `json:"field_name"`
	FieldLabel       string `json:"field_label,omitempty"`
	FieldDescription string `json:"field_description,omitempty"`
	// FieldType is what the form shows, such as text or select.
	FieldType string `json:"field_type"`
	// FieldValues are what can be chosen from.
	FieldValues []string `json:"field_values,omitempty"`
	Required    bool     `json:"required"`
	// DefaultValue is a scalar or a list of scalars.
	DefaultValue Value  `json:"default_value,omitempty"`
	Placeholder  string `json:"placeholder,omitempty"`
}

func (f FormField) check(c *checker, at string) {
	c.text(at+"field_name", f.FieldName, MaxIDLength)
	c.optionalText(at+"field_label", f.FieldLabel, MaxNameBytes)
	c.optionalText(at+"field_description", f.FieldDescription, MaxMessageBytes)
	c.id(at+"field_type", f.FieldType)
	if len(f.FieldValues) > MaxFieldValues {
		c.fail(at+"field_values", tooMany)
	}
	for _, v := range f.FieldValues {
		c.optionalText(at+"field_values", v, MaxNameBytes)
	}
	if f.DefaultValue != "" {
		c.json(at+"default_value", string(f.DefaultValue), MaxMessageBytes, 1)
	}
	c.optionalText(at+"placeholder", f.Placeholder, MaxNameBytes)
}

// Decision is an answer to a tool approval.
type Decision string

// The decisions on a tool call.
const (
	DecisionApprove Decision = "approve"
	DecisionEdit    Decision = "edit"
	DecisionReject  Decision = "reject"
)

// ToolApproval asks for a decision on one tool call.
type ToolApproval struct {
	ToolCallID       string     `json:"tool_call_id"`
	ToolName         string     `json:"tool_name"`
	ToolArgs         Object     `json:"tool_args"`
	AllowedDecisions []Decision `json:"allowed_decisions"`
}

func (a ToolApproval) check(c *checker, at string) {
	c.id(at+"tool_call_id", a.ToolCallID)
	c.toolID(at+"tool_name", a.ToolName)
	c.arguments(at+"tool_args", a.ToolArgs)
	c.count(at+"allowed_decisions", len(a.AllowedDecisions), 3)
	for i, d := range a.AllowedDecisions {
		oneOf(c, at+"allowed_decisions", d, DecisionApprove, DecisionEdit, DecisionReject)
		if slices.Contains(a.AllowedDecisions[:i], d) {
			c.fail(at+"allowed_decisions", "a decision stands there twice")
		}
	}
}
