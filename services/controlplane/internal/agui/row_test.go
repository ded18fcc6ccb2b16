package agui_test

import (
	"slices"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/agui"
)

// One row and more for each row of the contract's table "Public encodings": what
// came before, the event, and its frames as they stand on the wire.
func TestEncodingOfEachEvent(t *testing.T) {
	t.Parallel()
	type drafts = []event.Draft
	enters := in(event.NamespaceEntered{AgentID: "helper", AgentName: "The helper", ParentToolCallID: "1"}, "a")
	exits := func(o event.NamespaceOutcome) event.Draft {
		return in(event.NamespaceExited{AgentID: "helper", ParentToolCallID: "1", Outcome: o}, "a")
	}
	used := root(event.UsageUpdated{InputTokens: new(uint64(10)), OutputTokens: new(uint64(5)), Cost: new(0.5), Currency: new("EUR"), Final: true})
	for name, row := range map[string]struct {
		before drafts
		event  event.Draft
		want   []string
	}{
		"text.started": {nil, starts("m"), []string{
			`{"type":"TEXT_MESSAGE_START",#,"metadata":{"message_id":"m"},"messageId":"run_1/text/m","role":"assistant"}`,
		}},
		"text.delta": {drafts{starts("m")}, says("m", "<b>&\u2028\n\"é😀"), []string{
			`{"type":"TEXT_MESSAGE_CONTENT",#,"messageId":"run_1/text/m","delta":"<b>&\u2028\n\"é😀"}`,
		}},
		"text.finished": {drafts{starts("m")}, stops("m"), []string{`{"type":"TEXT_MESSAGE_END",#,"messageId":"run_1/text/m"}`}},
		"text in a namespace": {drafts{calls("1", `{}`), enters}, in(event.TextStarted{MessageID: "m"}, "a"), []string{
			`{"type":"TEXT_MESSAGE_START",#,"metadata":{"message_id":"m"},"subagentRunId":"run_1/agent/2","messageId":"run_1/text/m","role":"assistant"}`,
		}},
		"reasoning.started": {nil, root(event.ReasoningStarted{MessageID: "m"}), []string{
			`{"type":"REASONING_START",#,"messageId":"run_1/reasoning/m"}`,
			`{"type":"REASONING_MESSAGE_START",#,"metadata":{"message_id":"m"},"messageId":"run_1/reasoning/m","role":"reasoning"}`,
		}},
		"reasoning.delta": {drafts{root(event.ReasoningStarted{MessageID: "m"})}, root(event.ReasoningDelta{MessageID: "m", Delta: "hm"}), []string{
			`{"type":"REASONING_MESSAGE_CONTENT",#,"messageId":"run_1/reasoning/m","delta":"hm"}`,
		}},
		"reasoning.finished": {drafts{root(event.ReasoningStarted{MessageID: "m"})}, root(event.ReasoningFinished{MessageID: "m"}), []string{
			`{"type":"REASONING_MESSAGE_END",#,"messageId":"run_1/reasoning/m"}`,
			`{"type":"REASONING_END",#,"messageId":"run_1/reasoning/m"}`,
		}},
		"tool.started": {drafts{starts("m")}, callsFor("1", `{"n":12345678901234567890}`, "m"), []string{
			`{"type":"TOOL_CALL_START",#,"metadata":{"tool_call_id":"1"},"toolCallId":"run_1/call/1","toolCallName":"fs.read_text_file","parentMessageId":"run_1/text/m"}`,
			`{"type":"TOOL_CALL_ARGS",#,"toolCallId":"run_1/call/1","delta":"{\"n\":12345678901234567890}"}`,
		}},
		"tool.started, arguments come later": {nil, calls("1", `{ }`), []string{
			`{"type":"TOOL_CALL_START",#,"metadata":{"tool_call_id":"1"},"toolCallId":"run_1/call/1","toolCallName":"fs.read_text_file"}`,
		}},
		"tool.started for a message that is not there": {nil, callsFor("1", `{}`, "m"), []string{
			`{"type":"TOOL_CALL_START",#,"metadata":{"tool_call_id":"1"},"toolCallId":"run_1/call/1","toolCallName":"fs.read_text_file"}`,
		}},
		"tool.arguments.delta": {drafts{calls("1", `{}`)}, argues("1", `{"pa`), []string{
			`{"type":"TOOL_CALL_ARGS",#,"toolCallId":"run_1/call/1","delta":"{\"pa"}`,
		}},
		"tool.arguments.delta that no object begins with": {drafts{calls("1", `{}`)}, argues("1", `[1`), nil},
		"tool.finished": {drafts{calls("1", `{}`)}, returns("1", `"12 bytes"`), []string{
			`{"type":"TOOL_CALL_ARGS",#,"toolCallId":"run_1/call/1","delta":"{}"}`,
			`{"type":"TOOL_CALL_END",#,"toolCallId":"run_1/call/1"}`,
			`{"type":"TOOL_CALL_RESULT",#,"messageId":"run_1/result/1","toolCallId":"run_1/call/1","content":"12 bytes","role":"tool"}`,
		}},
		"tool.finished, no text and a reference": {
			drafts{calls("1", `{"a":1}`)}, root(event.ToolFinished{ToolCallID: "1", Result: `{"a":[null]}`, ResultRef: "file-1"}), []string{
				`{"type":"TOOL_CALL_END",#,"toolCallId":"run_1/call/1"}`,
				`{"type":"TOOL_CALL_RESULT",#,"metadata":{"result_ref":"file-1"},"messageId":"run_1/result/1","toolCallId":"run_1/call/1","content":"{\"a\":[null]}","role":"tool"}`,
			},
		},
		"tool.error, arguments that are cut off": {drafts{calls("1", `{}`), argues("1", `{"a":["b`)}, fails("1"), []string{
			`{"type":"TOOL_CALL_ARGS",#,"toolCallId":"run_1/call/1","delta":"\"]}"}`,
			`{"type":"TOOL_CALL_END",#,"toolCallId":"run_1/call/1"}`,
			`{"type":"TOOL_CALL_RESULT",#,"metadata":{"error":{"code":"tool_unavailable","message":"The tool's server does not answer. Try again.","retryable":true}},` +
				`"messageId":"run_1/result/1","toolCallId":"run_1/call/1","content":"Error tool_unavailable: The tool's server does not answer. Try again.","role":"tool"}`,
		}},
		"namespace.entered": {drafts{calls("1", `{"a":1}`)}, enters, []string{
			`{"type":"SUBAGENT_STARTED",#,"metadata":{"agent_id":"helper","namespace":["a"]},"subagentRunId":"run_1/agent/2","name":"The helper","parentToolCallId":"run_1/call/1"}`,
		}},
		"namespace.entered again": {drafts{calls("1", `{"a":1}`), enters, exits(event.NamespaceSuccess)}, enters, []string{
			`{"type":"SUBAGENT_STARTED",#,"metadata":{"agent_id":"helper","namespace":["a"]},"subagentRunId":"run_1/agent/4","name":"The helper","parentToolCallId":"run_1/call/1"}`,
		}},
		"namespace.entered below another": {
			drafts{calls("1", `{"a":1}`), enters, in(event.ToolStarted{ToolCallID: "2", ToolName: "fs.read", Arguments: `{}`}, "a")},
			in(event.NamespaceEntered{AgentID: "b", AgentName: "B", ParentToolCallID: "2"}, "a", "b"),
			[]string{
				`{"type":"SUBAGENT_STARTED",#,"metadata":{"agent_id":"b","namespace":["a","b"]},"subagentRunId":"run_1/agent/4","name":"B",` +
					`"parentSubagentRunId":"run_1/agent/2","parentToolCallId":"run_1/call/2"}`,
			},
		},
		"namespace.exited, success": {drafts{calls("1", `{}`), enters}, exits(event.NamespaceSuccess), []string{
			`{"type":"SUBAGENT_FINISHED",#,"subagentRunId":"run_1/agent/2","outcome":{"type":"success"}}`,
		}},
		"namespace.exited, interrupted": {drafts{calls("1", `{}`), enters}, exits(event.NamespaceInterrupted), []string{
			`{"type":"SUBAGENT_FINISHED",#,"subagentRunId":"run_1/agent/2","outcome":{"type":"suspended"}}`,
		}},
		"namespace.exited, its own interrupt": {
			drafts{calls("1", `{}`), enters, {Namespace: []string{"a"}, Data: event.InterruptRequested{
				InterruptID: "i", InterruptType: event.InterruptFormInput, AgentID: "helper", Prompt: "Which?",
				Fields: []event.FormField{{FieldName: "which", FieldType: "text"}},
			}}},
			exits(event.NamespaceInterrupted),
			[]string{`{"type":"SUBAGENT_FINISHED",#,"subagentRunId":"run_1/agent/2","outcome":{"type":"suspended","interruptIds":["i"]}}`},
		},
		"namespace.exited, cancelled": {drafts{calls("1", `{}`), enters}, exits(event.NamespaceCancelled), []string{
			`{"type":"SUBAGENT_ERROR",#,"subagentRunId":"run_1/agent/2","message":"The subagent was cancelled.","code":"cancelled"}`,
		}},
		"namespace.exited, error": {drafts{calls("1", `{}`), enters}, exits(event.NamespaceError), []string{
			`{"type":"SUBAGENT_ERROR",#,"subagentRunId":"run_1/agent/2","message":"The subagent failed."}`,
		}},
		"warning": {nil, root(event.Warning{Code: "slow", Message: "This takes a while.", Details: `{"server":"fs","last":null}`}), []string{
			`{"type":"CUSTOM",#,"name":"WARNING","value":{"code":"slow","message":"This takes a while.","details":{"server":"fs","last":null}}}`,
		}},
		"usage.updated":       {nil, root(event.UsageUpdated{InputTokens: new(uint64(1))}), nil},
		"usage.updated final": {nil, used, nil},
		"provider.metadata":   {nil, root(event.ProviderMetadata{Provider: "p", Model: "m", Metadata: `{"region":"eu"}`}), nil},
		"interrupt.requested": {drafts{calls("1", `{"path":"a.txt"}`)}, asksToApprove("1"), nil},
		"run.finished": {drafts{used}, finishes(), []string{
			`{"type":"RUN_FINISHED",#,"metadata":{"cost":0.5,"currency":"EUR","durability":"committed","durable_revision":8,"run_id":"run_1","stop_reason":"end_turn"},` +
				`"threadId":"thread-1","runId":"client-run-1","outcome":{"type":"success"},"usage":[{"inputTokens":10,"outputTokens":5}]}`,
		}},
		"run.finished, usage unknown": {drafts{root(event.UsageUpdated{Final: true})}, finishes(), []string{
			`{"type":"RUN_FINISHED",#,"metadata":{"durability":"committed","durable_revision":8,"run_id":"run_1","stop_reason":"end_turn"},` +
				`"threadId":"thread-1","runId":"client-run-1","outcome":{"type":"success"}}`,
		}},
		"run.finished, usage not final": {drafts{root(event.UsageUpdated{InputTokens: new(uint64(1))})}, root(event.RunFinished{StopReason: "end_turn", ThreadState: event.Ephemeral()}), []string{
			`{"type":"RUN_FINISHED",#,"metadata":{"durability":"none","run_id":"run_1","stop_reason":"end_turn"},` +
				`"threadId":"thread-1","runId":"client-run-1","outcome":{"type":"success"}}`,
		}},
		"run.cancelled": {nil, root(event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsKnown}), []string{
			`{"type":"RUN_FINISHED",#,"metadata":{"reason":"client_request","run_id":"run_1","side_effect_status":"known"},` +
				`"threadId":"thread-1","runId":"client-run-1","outcome":{"type":"cancelled"}}`,
		}},
		"run.error": {
			drafts{used}, root(event.RunError{
				Code: "rate_limited", Message: "The model is busy.", Retryable: true, RetryAfterSeconds: new(uint64(30)), SideEffectStatus: event.SideEffectsNone,
			}), []string{
				`{"type":"RUN_ERROR",#,"metadata":{"cost":0.5,"currency":"EUR","retry_after_seconds":30,"retryable":true,"run_id":"run_1","side_effect_status":"none"},` +
					`"message":"The model is busy.","code":"rate_limited","usage":[{"inputTokens":10,"outputTokens":5}]}`,
			},
		},
		"run.error closes what is open": {
			drafts{starts("m"), calls("1", `{}`), argues("1", `{"a":tr`)},
			root(event.RunError{Code: "sandbox_evicted", Message: "Gone.", SideEffectStatus: event.SideEffectsPossible}),
			[]string{
				`{"type":"TOOL_CALL_ARGS",#,"toolCallId":"run_1/call/1","delta":"ue}"}`,
				`{"type":"TOOL_CALL_END",#,"toolCallId":"run_1/call/1"}`,
				`{"type":"TOOL_CALL_RESULT",#,"metadata":{"error":{"code":"sandbox_evicted","message":"The run failed before this tool call ended.","retryable":false}},` +
					`"messageId":"run_1/result/1","toolCallId":"run_1/call/1","content":"Error sandbox_evicted: The run failed before this tool call ended.","role":"tool"}`,
				`{"type":"TEXT_MESSAGE_END",#,"messageId":"run_1/text/m"}`,
				`{"type":"RUN_ERROR",#,"metadata":{"retryable":false,"run_id":"run_1","side_effect_status":"possible"},"message":"Gone.","code":"sandbox_evicted"}`,
			},
		},
		"run.error after interrupt.requested": {
			drafts{calls("1", `{"path":"a.txt"}`), asksToApprove("1"), root(event.ToolError{ToolCallID: "1", Code: "internal", Message: "No."})},
			root(event.RunError{Code: "persistence_failed", Message: "Not saved.", SideEffectStatus: event.SideEffectsNone}),
			[]string{
				`{"type":"RUN_ERROR",#,"metadata":{"retryable":false,"run_id":"run_1","side_effect_status":"none"},"message":"Not saved.","code":"persistence_failed"}`,
			},
		},
		"run.interrupted": {drafts{calls("1", `{"path":"a.txt"}`), asksToApprove("1")}, waits(event.InterruptedForToolApproval), []string{
			`{"type":"TOOL_CALL_END",#,"toolCallId":"run_1/call/1"}`,
			`{"type":"STATE_SNAPSHOT",#,"snapshot":{"page":3}}`,
			`{"type":"MESSAGES_SNAPSHOT",#,"messages":[{"id":"user-1","role":"user","content":"hi"},{"id":"run_1/call/1","role":"assistant","toolCalls":[` +
				`{"id":"run_1/call/1","type":"function","function":{"name":"fs.read_text_file","arguments":"{\"path\":\"a.txt\"}"},"metadata":{"tool_call_id":"1"}}]}]}`,
			`{"type":"RUN_FINISHED",#,"metadata":{"run_id":"run_1"},"threadId":"thread-1","runId":"client-run-1","outcome":{"type":"interrupt","interrupts":[` +
				`{"id":"interrupt-1","reason":"tool_approval","message":"May the tool fs.read_text_file be called?","toolCallId":"run_1/call/1",` +
				`"responseSchema":{"type":"object","properties":{"arguments":{"type":"object"},"decision":{"type":"string","enum":["approve","edit","reject"]}},"required":["decision"]},` +
				`"metadata":{"agent_id":"demo","allowed_decisions":["approve","edit","reject"],"interrupt_id":"interrupt-1","interrupt_type":"tool_approval",` +
				`"tool_args":{"path":"a.txt"},"tool_call_id":"1","tool_name":"fs.read_text_file"}}]}}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := stamped(runID, append(slices.Clone(row.before), row.event)...)
			last := len(run) - 1
			e := agui.NewEncoder(threadID, clientID, echoed(t))
			encode(t, e, run[:last]...)
			same(t, encode(t, e, run[last]), run[last], row.want)
		})
	}
}

func TestEncodingOfRunStarted(t *testing.T) {
	t.Parallel()
	run := stamped(runID)
	same(t, encode(t, agui.NewEncoder(threadID, clientID), run...), run[0], []string{
		`{"type":"RUN_STARTED",#,"metadata":{"run_id":"run_1"},"threadId":"thread-1","runId":"client-run-1","protocolVersion":"1.0"}`,
	})
}

// What a client sent and the run cannot use is told of, not dropped in silence.
func TestSkippedPartsAreToldOf(t *testing.T) {
	t.Parallel()
	run := stamped(runID)
	same(t, encode(t, agui.NewEncoder(threadID, clientID, agui.Echo(agui.Input{Skipped: 2})), run...), run[0], []string{
		`{"type":"RUN_STARTED",#,"metadata":{"run_id":"run_1"},"threadId":"thread-1","runId":"client-run-1","protocolVersion":"1.0"}`,
		`{"type":"CUSTOM",#,"name":"WARNING","value":{"code":"content_skipped","message":"Parts of the message that are not text were left out.","details":{"parts":2}}}`,
	})
}
