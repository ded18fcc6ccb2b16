package scripted

import (
	"maps"

	"cofferdam.dev/services/worker/internal/harness"
)

// capabilities are what the conformance suite has seen, and why there is nothing
// to see of the others.
func capabilities() harness.Capabilities {
	native := func(fixture string) harness.Capability {
		return harness.ByFixture(harness.Native, fixture, "where the script says so")
	}
	emulated := func(fixture, how string) harness.Capability {
		return harness.ByFixture(harness.Emulated, fixture, how)
	}
	c := harness.AroundAny("TestAWorkerReachesNothing")
	maps.Copy(c, harness.Capabilities{
		"stream.text":                  native("text"),
		"stream.reasoning":             native("reasoning"),
		"stream.usage":                 emulated("usage", "the script makes the numbers up"),
		"session.multi_turn":           native("memory of the first turn"),
		"session.cross_replica_resume": native("resume on a fresh worker"),
		"session.clear":                native("another conversation"),
		"thread.durable_commit":        native("text"),
		"thread.eviction_restore":      native("restored in a fresh worker"),
		"interrupt.form_input":         native("form"),
		"interrupt.tool_approval":      native("approve"),
		"interrupt.multi_tool":         native("several approvals"),
		"tool.mcp":                     native("tool call"),
		"tool.builtin":                 harness.Lacks("it has no tools of its own"),
		"tool.partial_availability":    native("unavailable tool"),
		"tool.cancellation":            native("cancel in a tool"),
		"input.images":                 emulated("files", "a script says the size and the digest of a file"),
		"input.documents":              emulated("files", "a script says the size and the digest of a file"),
		"skills":                       harness.Lacks("a script follows no skill"),
		"subagents":                    emulated("subagent", "steps in a namespace of their own"),
		"subagents.mixed_harness":      harness.Lacks("one harness per binding"),
		"memory.semantic":              native("memory records"),
		"memory.episodic_reference":    native("memory records"),
		"memory.procedural":            native("memory records"),
		"memory.user_scope":            native("memory records"),
		"memory.shared_policy":         emulated("memory records", "the memory service decides"),
		"observability.redaction":      native("nothing said is logged"),
		"runtime.cancel":               native("cancel in text"),
		"runtime.restart":              native("goes on after an error"),
		"runtime.bounded_cleanup":      native("shutdown in mid-run"),
		"runtime.lease_fencing":        native("replaced in mid-run"),
		"runtime.eviction_recovery":    native("evicted in mid-run"),
	})
	return c
}
