package acp

import (
	"maps"

	"cofferdam.dev/services/worker/internal/harness"
)

// capabilities of a preset's agent: what the conformance suite has seen of one,
// but for what the preset leaves out.
func capabilities(p *Preset) harness.Capabilities {
	native := func(fixture string) harness.Capability { return harness.ByFixture(harness.Native, fixture, "") }
	emulated := func(fixture, how string) harness.Capability {
		return harness.ByFixture(harness.Emulated, fixture, how)
	}
	const (
		noMemory = "no agent takes memory tools of the worker"
		placed   = "put into the workspace and named"
	)
	brokers := func(fixture string) harness.Capability {
		return harness.ByFixture(harness.Native, fixture, "what the brokers say ends the call, and the run")
	}
	c := harness.AroundAny("TestAProgramReachesNothing")
	maps.Copy(c, harness.Capabilities{
		"stream.text":                  native("text"),
		"stream.reasoning":             native("reasoning"),
		"stream.usage":                 native("usage"),
		"session.multi_turn":           native("memory of the first turn"),
		"session.cross_replica_resume": native("resume on a fresh worker"),
		"session.clear":                harness.ByFixture(harness.Native, "another conversation", "a thread without a head begins a session"),
		"thread.durable_commit":        native("text"),
		"thread.eviction_restore":      native("restored in a fresh worker"),
		"interrupt.form_input":         harness.Lacks("ACP has no stable way to ask for a form"),
		"interrupt.tool_approval":      native("approve"),
		"interrupt.multi_tool":         native("several approvals"),
		"tool.mcp":                     native("tool call"),
		"tool.builtin":                 native("skill"),
		"tool.partial_availability":    brokers("unavailable tool"),
		"tool.cancellation":            native("cancel in a tool"),
		"input.images":                 harness.ByFixture(harness.Native, "files", "of at most 4 MiB, where agent and model take them"),
		"input.documents":              emulated("files", placed+", or embedded where the agent takes that"),
		"skills":                       emulated("skill", "files in the workspace"),
		"subagents":                    harness.Lacks("an agent's own subagents are not told apart in ACP"),
		"subagents.mixed_harness":      harness.Lacks("one agent program per binding"),
		"memory.semantic":              harness.Lacks(noMemory),
		"memory.episodic_reference":    harness.Lacks(noMemory),
		"memory.procedural":            harness.Lacks(noMemory),
		"memory.user_scope":            harness.Lacks(noMemory),
		"memory.shared_policy":         harness.Lacks(noMemory),
		"observability.redaction":      native("nothing said is logged"),
		"runtime.cancel":               native("cancel in text"),
		"runtime.restart":              native("goes on after an error"),
		"runtime.bounded_cleanup":      native("shutdown in mid-run"),
		"runtime.lease_fencing":        brokers("replaced in mid-run"),
		"runtime.eviction_recovery":    native("evicted in mid-run"),
	})
	if !p.usesMCP() {
		for _, key := range []string{"tool.mcp", "tool.caller_credentials", "tool.partial_availability", "middleware.portable"} {
			c[key] = harness.Lacks("this agent takes no MCP server, so that it has no brokered tools")
		}
	}
	if p.Permission == PermissionAllow {
		c["interrupt.tool_approval"] = emulated("approve", "offered tools only: the agent's own run unasked")
	}
	if !p.Images {
		c["input.images"] = emulated("files", placed)
	}
	return c
}
