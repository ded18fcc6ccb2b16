package native

import (
	"maps"

	"cofferdam.dev/services/worker/internal/harness"
)

// capabilities are the levels of the contract's keys, each with the fixture that
// has seen it.
func capabilities() harness.Capabilities {
	const (
		byWire   = "where the model's wire has it"
		byBroker = "through the ToolBroker"
		byFacade = "through the memory facade, by key; in the scopes of the binding"
	)
	full := func(fixture string) harness.Capability { return harness.ByFixture(harness.Native, fixture, "") }
	within := func(constraints, fixture string) harness.Capability {
		return harness.ByFixture(harness.Native, fixture, constraints)
	}
	c := harness.AroundAny("TestAWorkerReachesNothing")
	maps.Copy(c, harness.Capabilities{
		"stream.text":                  full("text"),
		"stream.reasoning":             within(byWire, "reasoning"),
		"stream.usage":                 within("numbers that the provider tells", "usage"),
		"session.multi_turn":           full("memory of the first turn"),
		"session.cross_replica_resume": full("resume on a fresh worker"),
		"session.clear":                full("another conversation"),
		"thread.durable_commit":        full("text"),
		"thread.eviction_restore":      full("restored in a fresh worker"),
		"interrupt.form_input":         within("asked by the root agent as the last call of an answer, or by a tool, one at a time", "form"),
		"interrupt.tool_approval":      full("approve"),
		"interrupt.multi_tool":         within("16 calls in one interrupt", "several approvals"),
		"tool.mcp":                     within(byBroker, "tool call"),
		"tool.builtin":                 within("cofferdam.*: forms, memory, files, subagents", "skill"),
		"tool.partial_availability":    full("unavailable tool"),
		"tool.cancellation":            full("cancel in a tool"),
		"input.images":                 within("PNG, JPEG, GIF and WebP of at most 3 MiB, where the model takes them", "files"),
		"input.documents":              within("text of at most 128 KiB; PDF of at most 3 MiB, where the model takes it", "files"),
		"skills":                       harness.ByFixture(harness.Emulated, "skill", "read with cofferdam.read_file"),
		"subagents":                    within("two deep, 16 at once", "subagent"),
		"subagents.mixed_harness":      harness.Lacks("a subagent is the same loop with another prompt and fewer tools"),
		"memory.semantic":              within(byFacade, "memory records"),
		"memory.episodic_reference":    within(byFacade, "memory records"),
		"memory.procedural":            within(byFacade, "memory records"),
		"memory.user_scope":            within(byFacade, "memory records"),
		"memory.shared_policy":         harness.ByFixture(harness.Emulated, "memory records", "the memory service decides"),
		"observability.redaction":      full("nothing said is logged"),
		"runtime.cancel":               full("cancel in text"),
		"runtime.restart":              full("goes on after an error"),
		"runtime.bounded_cleanup":      full("shutdown in mid-run"),
		"runtime.lease_fencing":        within("through the facades", "replaced in mid-run"),
		"runtime.eviction_recovery":    within("from the last committed head", "evicted in mid-run"),
	})
	return c
}
