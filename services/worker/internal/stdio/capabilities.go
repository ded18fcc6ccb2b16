package stdio

import "cofferdam.dev/services/worker/internal/harness"

// capabilities are what the conformance suite has seen of programs on this line
// protocol, but for what the operator says that this one does not do.
func capabilities(unsupported map[string]string) harness.Capabilities {
	native := func(fixture string) harness.Capability {
		return harness.Capability{Level: harness.Native, EvidenceID: "conformance/" + fixture}
	}
	program := func(fixture string) harness.Capability {
		return harness.Capability{Level: harness.Native, Constraints: "as far as the program does it", EvidenceID: "conformance/" + fixture}
	}
	emulated := func(fixture, how string) harness.Capability {
		return harness.Capability{Level: harness.Emulated, Constraints: how, EvidenceID: fixture}
	}
	not := func(why string) harness.Capability {
		return harness.Capability{Level: harness.Unsupported, Reason: why}
	}
	outside := func(who string) harness.Capability {
		return harness.Capability{Level: harness.Unavailable, Reason: "done by " + who + ", for every adapter"}
	}
	out := harness.Capabilities{
		"stream.text":                     program("text"),
		"stream.reasoning":                program("reasoning"),
		"stream.usage":                    program("usage"),
		"invoke.non_streaming":            emulated("conformance/text", "the answer is the end of the stream"),
		"session.multi_turn":              program("memory of the first turn"),
		"session.cross_replica_resume":    native("resume on a fresh worker"),
		"session.clear":                   native("another conversation"),
		"thread.durable_commit":           native("text"),
		"thread.eviction_restore":         native("restored in a fresh worker"),
		"interrupt.form_input":            program("form"),
		"interrupt.tool_approval":         program("approve"),
		"interrupt.multi_tool":            program("several approvals"),
		"tool.mcp":                        native("tool call"),
		"tool.builtin":                    emulated("stdio/TestToolCalls", "the program tells of its own tools in drafts"),
		"tool.caller_credentials":         outside("the ToolBroker"),
		"tool.partial_availability":       native("unavailable tool"),
		"tool.cancellation":               native("cancel in a tool"),
		"input.images":                    emulated("stdio/TestFiles", "files in the workspace"),
		"input.documents":                 emulated("stdio/TestFiles", "files in the workspace"),
		"skills":                          emulated("stdio/TestLinesFitTheirSchemas", "named in initialize, and files in the workspace"),
		"subagents":                       program("subagent"),
		"subagents.mixed_harness":         not("one program per binding"),
		"middleware.portable":             outside("the worker"),
		"memory.semantic":                 program("memory records"),
		"memory.episodic_reference":       emulated("stdio/TestMemory", "the program says of which kind a record is"),
		"memory.procedural":               emulated("stdio/TestMemory", "the program says of which kind a record is"),
		"memory.user_scope":               program("memory records"),
		"memory.shared_policy":            outside("the state facade"),
		"observability.metrics":           outside("the worker"),
		"observability.tracing":           outside("the worker"),
		"observability.trace_propagation": not("a program is told of no trace"),
		"observability.redaction":         native("nothing said is logged"),
		"runtime.cancel":                  native("cancel in text"),
		"runtime.restart":                 native("goes on after an error"),
		"runtime.bounded_cleanup":         native("shutdown in mid-run"),
		"runtime.sandbox_isolation":       outside("the sandbox provider"),
		"runtime.lease_fencing":           native("replaced in mid-run"),
		"runtime.eviction_recovery":       native("evicted in mid-run"),
	}
	for key, reason := range unsupported {
		out[key] = harness.Capability{Level: harness.Unsupported, Reason: reason}
	}
	return out
}
