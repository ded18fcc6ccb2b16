package harness

import "encoding/json"

// Construction is what bind gives an adapter. It holds no credential.
type Construction struct {
	AgentID      string
	AgentName    string
	Options      json.RawMessage
	Prompt       string
	UserContext  json.RawMessage
	Model        ModelConfig
	Tools        []Tool
	Interrupts   InterruptPolicy
	MemoryScopes []MemoryScope
	// Manifest is what was materialized read-only in the workspace: skills/… and
	// files/….
	Manifest []Materialized
	Limits   Limits
}

// Wire is a model provider's own protocol.
type Wire string

// The wires that modelproxy passes on.
const (
	WireOpenAIChat        Wire = "openai_chat"
	WireOpenAIResponses   Wire = "openai_responses"
	WireAnthropicMessages Wire = "anthropic_messages"
	WireGemini            Wire = "gemini"
)

// ModelConfig is the normalized configuration of the agent's model.
type ModelConfig struct {
	Alias string
	Wire  Wire
	// MaxOutputTokens of one answer; 0 leaves it to the model.
	MaxOutputTokens int
	// ContextTokens that the model takes; 0 is unknown.
	ContextTokens int
	// Images and Documents tell what the model takes besides text.
	Images, Documents bool
}

// Tool is a portable tool descriptor.
type Tool struct {
	ID          string
	OfferedName string
	Description string
	InputSchema json.RawMessage
	// ApprovalRequired asks a person before each call.
	ApprovalRequired bool
	// ReadOnly was declared by the operator.
	ReadOnly bool
	// Delegates says that a call lets another agent work, of which the worker tells.
	Delegates bool
}

// InterruptPolicy says what a harness may ask a person for.
type InterruptPolicy struct {
	FormInput    bool
	ToolApproval bool
}

// Materialized is a file of a manifest in the workspace.
type Materialized struct {
	// Path is relative to the workspace: skills/… or files/….
	Path     string
	MIMEType string
	Size     uint64
}

// Limits bound one run.
type Limits struct {
	ModelCalls int
	ToolCalls  int
	StateBytes int
}
