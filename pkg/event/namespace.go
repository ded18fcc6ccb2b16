package event

// NamespaceEntered opens the namespace of a subagent. The event's Namespace is
// the path that it opens.
type NamespaceEntered struct {
	AgentID   string `json:"agent_id"`
	AgentName string `json:"agent_name"`
	// ParentToolCallID is the open tool call that delegates.
	ParentToolCallID string `json:"parent_tool_call_id"`
}

// Type is namespace.entered.
func (NamespaceEntered) Type() Type { return TypeNamespaceEntered }

func (d NamespaceEntered) check(c *checker) {
	c.id("agent_id", d.AgentID)
	c.text("agent_name", d.AgentName, MaxNameBytes)
	c.id("parent_tool_call_id", d.ParentToolCallID)
}

// NamespaceOutcome says how a subagent ended.
type NamespaceOutcome string

// The outcomes of a subagent.
const (
	NamespaceSuccess     NamespaceOutcome = "success"
	NamespaceInterrupted NamespaceOutcome = "interrupted"
	NamespaceCancelled   NamespaceOutcome = "cancelled"
	NamespaceError       NamespaceOutcome = "error"
)

// NamespaceExited closes the namespace of a subagent. The event's Namespace is
// the path that it closes.
type NamespaceExited struct {
	AgentID          string           `json:"agent_id"`
	ParentToolCallID string           `json:"parent_tool_call_id"`
	Outcome          NamespaceOutcome `json:"outcome"`
}

// Type is namespace.exited.
func (NamespaceExited) Type() Type { return TypeNamespaceExited }

func (d NamespaceExited) check(c *checker) {
	c.id("agent_id", d.AgentID)
	c.id("parent_tool_call_id", d.ParentToolCallID)
	oneOf(c, "outcome", d.Outcome, NamespaceSuccess, NamespaceInterrupted, NamespaceCancelled, NamespaceError)
}
