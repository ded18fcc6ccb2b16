package harness

// Level says how far an adapter has a capability.
type Level string

// The levels of the contract, as the conformance suite derives them.
const (
	// Native is what the harness does itself.
	Native Level = "native"
	// Emulated is what is done for it: by its adapter, the worker, or a broker.
	Emulated Level = "emulated"
	// Unsupported is what was not seen of it.
	Unsupported Level = "unsupported"
	// Unavailable is what an operator switched off. No adapter claims it by itself.
	Unavailable Level = "unavailable"
)

// Capability is one key's level.
type Capability struct {
	Level       Level  `json:"level"`
	Constraints string `json:"constraints,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// EvidenceID names the test that has seen it, by the folder it stands in:
	// "conformance/" and the name of a fixture, or "tests/escape/" and that of a test.
	EvidenceID string `json:"evidence_id,omitempty"`
}

// ByFixture has what a fixture of the conformance suite has seen. constraints may
// be "".
func ByFixture(l Level, fixture, constraints string) Capability {
	return Capability{Level: l, Constraints: constraints, EvidenceID: "conformance/" + fixture}
}

// ByTest has what a test of the repository has seen, which stands in a folder.
func ByTest(l Level, folder, test, constraints string) Capability {
	return Capability{Level: l, Constraints: constraints, EvidenceID: folder + "/" + test}
}

// Lacks has what is unsupported, and why.
func Lacks(reason string) Capability { return Capability{Level: Unsupported, Reason: reason} }

// AroundAny has the capabilities that a worker and its brokers give to any
// harness. test is that of tests/escape which attacks the sandbox as this kind of
// harness can.
func AroundAny(test string) Capabilities {
	const byWorker = "by the worker, in the calls of its brokers"
	return Capabilities{
		"invoke.non_streaming":            ByFixture(Emulated, "text", "the answer is the end of the stream"),
		"tool.caller_credentials":         ByFixture(Emulated, "tool call", "by the ToolBroker, for brokered calls; none reaches the worker"),
		"middleware.portable":             ByFixture(Emulated, "denied tool", "by the worker, around brokered calls"),
		"observability.metrics":           ByFixture(Emulated, "tool call", byWorker),
		"observability.tracing":           ByFixture(Emulated, "tool call", byWorker),
		"observability.trace_propagation": ByFixture(Emulated, "tool call", byWorker),
		"runtime.sandbox_isolation":       ByTest(Emulated, "tests/escape", test, "by the sandbox provider"),
	}
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
