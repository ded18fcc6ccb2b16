package harness

// Level says how far an adapter has a capability.
type Level string

// The levels of the contract.
const (
	Native      Level = "native"
	Emulated    Level = "emulated"
	Unsupported Level = "unsupported"
	Unavailable Level = "unavailable"
)

// Capability is one key's level.
type Capability struct {
	Level       Level  `json:"level"`
	Constraints string `json:"constraints,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// EvidenceID names the test that has seen it.
	EvidenceID string `json:"evidence_id,omitempty"`
}

// Capabilities by key.
type Capabilities map[string]Capability

// CapabilityKeys are the keys of the Harness Adapter contract, version 1.
func CapabilityKeys() []string {
	return []string{
		"stream.text", "stream.reasoning", "stream.usage", "invoke.non_streaming", "session.multi_turn",
		"session.cross_replica_resume", "session.clear", "thread.durable_commit", "thread.eviction_restore",
		"interrupt.form_input", "interrupt.tool_approval", "interrupt.multi_tool", "tool.mcp", "tool.builtin",
		"tool.caller_credentials", "tool.partial_availability", "tool.cancellation", "input.images", "input.documents",
		"skills", "subagents", "subagents.mixed_harness", "middleware.portable", "memory.semantic",
		"memory.episodic_reference", "memory.procedural", "memory.user_scope", "memory.shared_policy",
		"observability.metrics", "observability.tracing", "observability.trace_propagation", "observability.redaction",
		"runtime.cancel", "runtime.restart", "runtime.bounded_cleanup", "runtime.sandbox_isolation",
		"runtime.lease_fencing", "runtime.eviction_recovery",
	}
}
