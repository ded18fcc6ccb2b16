package native

import "cofferdam.dev/services/worker/internal/harness"

// capabilities are the levels of the contract's keys, each with the test that has
// seen it.
func capabilities() harness.Capabilities {
	const (
		byWire    = "where the model's wire has it"
		byBroker  = "through the ToolBroker"
		byWorker  = "done by the worker around the adapter"
		byFacade  = "through the memory facade, by key; in the scopes of the binding"
		fromState = "TestApproval"
	)
	full := func(evidence string) harness.Capability {
		return harness.Capability{Level: harness.Native, EvidenceID: "native." + evidence}
	}
	within := func(constraints, evidence string) harness.Capability {
		c := full(evidence)
		c.Constraints = constraints
		return c
	}
	emulated := func(constraints, evidence string) harness.Capability {
		c := within(constraints, evidence)
		c.Level = harness.Emulated
		return c
	}
	not := func(reason string) harness.Capability {
		return harness.Capability{Level: harness.Unsupported, Reason: reason}
	}
	return harness.Capabilities{
		"stream.text":                     full("TestFixtures"),
		"stream.reasoning":                within(byWire, "TestFixtures"),
		"stream.usage":                    within("numbers that the provider tells", "TestUsageOnEachWire"),
		"invoke.non_streaming":            emulated("the caller collects the stream", "TestTurn"),
		"session.multi_turn":              full("TestThread"),
		"session.cross_replica_resume":    full(fromState),
		"session.clear":                   full("TestClear"),
		"thread.durable_commit":           full("TestThreadFails"),
		"thread.eviction_restore":         full("TestThread"),
		"interrupt.form_input":            within("asked by the root agent as the last call of an answer, or by a tool, one at a time", "TestForm"),
		"interrupt.tool_approval":         full(fromState),
		"interrupt.multi_tool":            within("16 calls in one interrupt", "TestApprovalsOfSeveralAgents"),
		"tool.mcp":                        within(byBroker, "TestToolCall"),
		"tool.builtin":                    within("cofferdam.*: forms, memory, files, subagents", "TestFileTools"),
		"tool.caller_credentials":         within("added by the ToolBroker; none reaches the worker", "TestToolCall"),
		"tool.partial_availability":       full("TestToolErrors"),
		"tool.cancellation":               full("TestCancelInATool"),
		"input.images":                    within("PNG, JPEG, GIF and WebP of at most 3 MiB, where the model takes them", "TestFilesOnEachWire"),
		"input.documents":                 within("text of at most 128 KiB; PDF of at most 3 MiB, where the model takes it", "TestFilesOnEachWire"),
		"skills":                          emulated("read with cofferdam.read_file", "TestFileTools"),
		"subagents":                       within("two deep, 16 at once", "TestSubagent"),
		"subagents.mixed_harness":         not("a subagent is the same loop with another prompt and fewer tools"),
		"middleware.portable":             emulated(byWorker, "TestToolCall"),
		"memory.semantic":                 within(byFacade, "TestMemoryTools"),
		"memory.episodic_reference":       within(byFacade, "TestMemoryTools"),
		"memory.procedural":               within(byFacade, "TestMemoryTools"),
		"memory.user_scope":               within(byFacade, "TestMemoryTools"),
		"memory.shared_policy":            within("the memory service decides", "TestMemoryErrors"),
		"observability.metrics":           not("the adapter counts nothing; the brokers do"),
		"observability.tracing":           not("the adapter makes no spans: those of a provider's SDK are off"),
		"observability.trace_propagation": emulated(byWorker, "TestEnvironmentIsNotRead"),
		"observability.redaction":         full("TestFailuresOnEachWire"),
		"runtime.cancel":                  full("TestCancelAtEachPoint"),
		"runtime.restart":                 full("TestThread"),
		"runtime.bounded_cleanup":         full("TestMain"),
		"runtime.sandbox_isolation":       within("it is code of the worker, in the worker's sandbox", "TestReadFileStaysInside"),
		"runtime.lease_fencing":           within("through the facades", "TestToolErrorsThatEndTheRun"),
		"runtime.eviction_recovery":       within("from the last committed head", "TestThread"),
	}
}
