package scripted

import "cofferdam.dev/services/worker/internal/harness"

// capabilities are what the conformance suite has seen, and why there is nothing
// to see of the others.
func capabilities() harness.Capabilities {
	native := func(fixture string) harness.Capability {
		return harness.Capability{Level: harness.Native, Constraints: "where the script says so", EvidenceID: "conformance/" + fixture}
	}
	emulated := func(fixture, how string) harness.Capability {
		return harness.Capability{Level: harness.Emulated, Constraints: how, EvidenceID: "conformance/" + fixture}
	}
	not := func(why string) harness.Capability {
		return harness.Capability{Level: harness.Unsupported, Reason: why}
	}
	outside := func(who string) harness.Capability {
		return harness.Capability{Level: harness.Unavailable, Reason: "done by " + who + ", for every adapter"}
	}
	return harness.Capabilities{
		"stream.text":                     native("text"),
		"stream.reasoning":                native("reasoning"),
		"stream.usage":                    emulated("usage", "the script makes the numbers up"),
		"invoke.non_streaming":            emulated("text", "the answer is the end of the stream"),
		"session.multi_turn":              native("memory of the first turn"),
		"session.cross_replica_resume":    native("resume on a fresh worker"),
		"session.clear":                   native("another conversation"),
		"thread.durable_commit":           native("text"),
		"thread.eviction_restore":         native("restored in a fresh worker"),
		"interrupt.form_input":            native("form"),
		"interrupt.tool_approval":         native("approve"),
		"interrupt.multi_tool":            native("several approvals"),
		"tool.mcp":                        native("tool call"),
		"tool.builtin":                    not("it has no tools of its own"),
		"tool.caller_credentials":         outside("the ToolBroker"),
		"tool.partial_availability":       native("unavailable tool"),
		"tool.cancellation":               native("cancel in a tool"),
		"input.images":                    not("a script sees only the size and the digest of a file"),
		"input.documents":                 not("a script sees only the size and the digest of a file"),
		"skills":                          not("a script follows no skill"),
		"subagents":                       emulated("subagent", "steps in a namespace of their own"),
		"subagents.mixed_harness":         not("one harness per binding"),
		"middleware.portable":             outside("the worker"),
		"memory.semantic":                 native("memory records"),
		"memory.episodic_reference":       not("a script writes semantic records only"),
		"memory.procedural":               not("a script writes semantic records only"),
		"memory.user_scope":               native("memory records"),
		"memory.shared_policy":            outside("the state facade"),
		"observability.metrics":           outside("the worker"),
		"observability.tracing":           outside("the worker"),
		"observability.trace_propagation": outside("the worker"),
		"observability.redaction":         native("nothing said is logged"),
		"runtime.cancel":                  native("cancel in text"),
		"runtime.restart":                 native("goes on after an error"),
		"runtime.bounded_cleanup":         native("shutdown in mid-run"),
		"runtime.sandbox_isolation":       outside("the sandbox provider"),
		"runtime.lease_fencing":           native("replaced in mid-run"),
		"runtime.eviction_recovery":       native("evicted in mid-run"),
	}
}
