package acp

import "cofferdam.dev/services/worker/internal/harness"

// capabilities of a preset's agent. Each level names the test that has seen it, of
// this package or of the conformance suite, or why there is none.
func capabilities(p *Preset) harness.Capabilities {
	native := func(test string) harness.Capability {
		return harness.Capability{Level: harness.Native, EvidenceID: "acp/" + test}
	}
	emulated := func(test, how string) harness.Capability {
		return harness.Capability{Level: harness.Emulated, EvidenceID: "acp/" + test, Constraints: how}
	}
	not := func(why string) harness.Capability {
		return harness.Capability{Level: harness.Unsupported, Reason: why}
	}
	outside := func(who string) harness.Capability {
		return harness.Capability{Level: harness.Unavailable, Reason: "done by " + who + ", for every adapter"}
	}
	seen := harness.Capability{Level: harness.Native, EvidenceID: "conformance/TestACP", Constraints: "what the brokers say ends the call, and the run"}
	c := harness.Capabilities{
		"stream.text":                     native("TestATurn"),
		"stream.reasoning":                native("TestUpdatesBecomeEvents"),
		"stream.usage":                    native("TestATurn"),
		"invoke.non_streaming":            emulated("TestATurn", "the answer is the end of the stream"),
		"session.multi_turn":              native("TestTheNextTurnGoesOn"),
		"session.cross_replica_resume":    native("TestANewWorkerGoesOn"),
		"session.clear":                   emulated("TestATurn", "a thread without a head begins a session"),
		"thread.durable_commit":           native("TestTheNextTurnGoesOn"),
		"thread.eviction_restore":         native("TestANewWorkerGoesOn"),
		"interrupt.form_input":            not("ACP has no stable way to ask for a form"),
		"interrupt.tool_approval":         native("TestAQuestionBecomesAnInterrupt"),
		"interrupt.multi_tool":            native("TestSeveralQuestionsAreOneInterrupt"),
		"tool.mcp":                        native("TestABrokeredCall"),
		"tool.builtin":                    native("TestUpdatesBecomeEvents"),
		"tool.caller_credentials":         outside("the ToolBroker"),
		"tool.partial_availability":       seen,
		"tool.cancellation":               native("TestCancel"),
		"input.images":                    native("TestFilesOfATurn"),
		"input.documents":                 emulated("TestFilesOfATurn", "put into the workspace and named, or embedded where the agent takes that"),
		"skills":                          emulated("TestFilesOfATurn", "files in the workspace"),
		"subagents":                       not("an agent's own subagents are not told apart in ACP"),
		"subagents.mixed_harness":         not("one agent program per binding"),
		"middleware.portable":             not("the loop is the agent's"),
		"memory.semantic":                 not("no agent takes memory tools of the worker"),
		"memory.episodic_reference":       not("no agent takes memory tools of the worker"),
		"memory.procedural":               not("no agent takes memory tools of the worker"),
		"memory.user_scope":               not("no agent takes memory tools of the worker"),
		"memory.shared_policy":            not("no agent takes memory tools of the worker"),
		"observability.metrics":           outside("the worker"),
		"observability.tracing":           outside("the worker"),
		"observability.trace_propagation": not("no agent passes a trace context on"),
		"observability.redaction":         native("TestNothingOfTheAgentIsLogged"),
		"runtime.cancel":                  native("TestCancel"),
		"runtime.restart":                 native("TestTheNextTurnGoesOn"),
		"runtime.bounded_cleanup":         native("TestCleanup"),
		"runtime.sandbox_isolation":       outside("the sandbox provider"),
		"runtime.lease_fencing":           seen,
		"runtime.eviction_recovery":       native("TestANewWorkerGoesOn"),
	}
	if !p.usesMCP() {
		c["tool.mcp"] = not("this agent takes no MCP server")
	}
	if p.Permission == PermissionAllow {
		c["interrupt.tool_approval"] = emulated("TestACallThatNeedsApproval", "offered tools only: the agent's own run unasked")
	}
	if !p.Images {
		c["input.images"] = emulated("TestFilesOfATurn", "put into the workspace and named")
	}
	return c
}
