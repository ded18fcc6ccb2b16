package stdio

import (
	"maps"

	"cofferdam.dev/services/worker/internal/harness"
)

// capabilities are what the conformance suite has seen of programs on this line
// protocol, but for what the operator says that this one does not do.
func capabilities(unsupported map[string]string) harness.Capabilities {
	native := func(fixture string) harness.Capability { return harness.ByFixture(harness.Native, fixture, "") }
	program := func(fixture string) harness.Capability {
		return harness.ByFixture(harness.Native, fixture, "as far as the program does it")
	}
	emulated := func(fixture, how string) harness.Capability {
		return harness.ByFixture(harness.Emulated, fixture, how)
	}
	const (
		told   = "as the program tells of it in drafts"
		placed = "files in the workspace, named to the program"
	)
	c := harness.AroundAny("TestAProgramReachesNothing")
	maps.Copy(c, harness.Capabilities{
		"stream.text":                  program("text"),
		"stream.reasoning":             program("reasoning"),
		"stream.usage":                 emulated("usage", told),
		"session.multi_turn":           program("memory of the first turn"),
		"session.cross_replica_resume": native("resume on a fresh worker"),
		"session.clear":                native("another conversation"),
		"thread.durable_commit":        native("text"),
		"thread.eviction_restore":      native("restored in a fresh worker"),
		"interrupt.form_input":         program("form"),
		"interrupt.tool_approval":      program("approve"),
		"interrupt.multi_tool":         program("several approvals"),
		"tool.mcp":                     native("tool call"),
		"tool.builtin":                 harness.ByFixture(harness.Native, "skill", told),
		"tool.partial_availability":    native("unavailable tool"),
		"tool.cancellation":            native("cancel in a tool"),
		"input.images":                 emulated("files", placed),
		"input.documents":              emulated("files", placed),
		"skills":                       emulated("skill", placed),
		"subagents":                    emulated("subagent", told),
		"subagents.mixed_harness":      harness.Lacks("one program per binding"),
		"memory.semantic":              program("memory records"),
		"memory.episodic_reference":    program("memory records"),
		"memory.procedural":            program("memory records"),
		"memory.user_scope":            program("memory records"),
		"memory.shared_policy":         emulated("memory records", "the memory service decides"),
		"observability.redaction":      native("nothing said is logged"),
		"runtime.cancel":               native("cancel in text"),
		"runtime.restart":              native("goes on after an error"),
		"runtime.bounded_cleanup":      native("shutdown in mid-run"),
		"runtime.lease_fencing":        native("replaced in mid-run"),
		"runtime.eviction_recovery":    native("evicted in mid-run"),
	})
	for key, reason := range unsupported {
		c[key] = harness.Lacks(reason)
	}
	return c
}
