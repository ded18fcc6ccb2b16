package eventtest

import (
	"strconv"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
)

// Payload is any payload that may stand in an event, of every type.
func Payload() *rapid.Generator[event.Data] {
	return rapid.Custom(func(t *rapid.T) event.Data {
		return PayloadOf(t, rapid.SampledFrom(event.Types()).Draw(t, "type"))
	})
}

// PayloadOf draws a payload of a type.
func PayloadOf(t *rapid.T, kind event.Type) event.Data {
	ident := func() string { return id().Draw(t, "id") }
	maybe := func() string { return optionalID().Draw(t, "optional id") }
	message := func() string { return text(event.MaxMessageBytes).Draw(t, "message") }
	delta := func() string { return text(event.MaxDeltaBytes).Draw(t, "delta") }
	flag := func() bool { return rapid.Bool().Draw(t, "flag") }
	effects := func() event.SideEffectStatus {
		return rapid.SampledFrom([]event.SideEffectStatus{event.SideEffectsNone, event.SideEffectsPossible, event.SideEffectsKnown}).Draw(t, "effects")
	}
	switch kind {
	case event.TypeRunStarted:
		return event.RunStarted{
			MessageID: maybe(), HarnessID: rapid.StringMatching(`[a-z][a-z0-9_]{1,63}`).Draw(t, "harness"),
			AdapterVersion: text(event.MaxNameBytes).Draw(t, "version"), ProviderRunID: maybe(),
		}
	case event.TypeRunFinished:
		return event.RunFinished{StopReason: ident(), ThreadState: threadState(t)}
	case event.TypeRunInterrupted:
		return event.RunInterrupted{InterruptID: ident(), Reason: rapid.SampledFrom([]event.InterruptReason{
			event.InterruptedForHumanInput, event.InterruptedForToolApproval,
		}).Draw(t, "reason")}
	case event.TypeRunCancelled:
		return event.RunCancelled{SideEffectStatus: effects(), Reason: rapid.SampledFrom([]event.CancelReason{
			event.CancelledByClient, event.CancelledByDisconnect, event.CancelledByShutdown, event.CancelledByDeadline,
		}).Draw(t, "reason")}
	case event.TypeRunError:
		return event.RunError{
			Code: ident(), Message: message(), Retryable: flag(), RetryAfterSeconds: number().Draw(t, "after"), SideEffectStatus: effects(),
		}
	case event.TypeTextStarted:
		return event.TextStarted{MessageID: ident()}
	case event.TypeTextDelta:
		return event.TextDelta{MessageID: ident(), Delta: delta()}
	case event.TypeTextFinished:
		return event.TextFinished{MessageID: ident()}
	case event.TypeReasoningStarted:
		return event.ReasoningStarted{MessageID: ident()}
	case event.TypeReasoningDelta:
		return event.ReasoningDelta{MessageID: ident(), Delta: delta()}
	case event.TypeReasoningFinished:
		return event.ReasoningFinished{MessageID: ident()}
	case event.TypeToolStarted:
		return event.ToolStarted{
			ToolCallID: ident(), ToolName: toolID().Draw(t, "tool"), Arguments: object(3).Draw(t, "arguments"), ParentMessageID: maybe(),
		}
	case event.TypeToolArgumentsDelta:
		return event.ToolArgumentsDelta{ToolCallID: ident(), Delta: delta()}
	case event.TypeToolFinished:
		return event.ToolFinished{ToolCallID: ident(), Result: value(3).Draw(t, "result"), ResultRef: maybe()}
	case event.TypeToolError:
		return event.ToolError{ToolCallID: ident(), Code: ident(), Message: message(), Retryable: flag()}
	case event.TypeInterruptRequested:
		return interrupt(t)
	case event.TypeNamespaceEntered:
		return event.NamespaceEntered{AgentID: ident(), AgentName: text(event.MaxNameBytes).Draw(t, "name"), ParentToolCallID: ident()}
	case event.TypeNamespaceExited:
		return event.NamespaceExited{AgentID: ident(), ParentToolCallID: ident(), Outcome: rapid.SampledFrom([]event.NamespaceOutcome{
			event.NamespaceSuccess, event.NamespaceInterrupted, event.NamespaceCancelled, event.NamespaceError,
		}).Draw(t, "outcome")}
	case event.TypeWarning:
		return event.Warning{Code: ident(), Message: message(), Details: rapid.OneOf(rapid.Just(event.Object("")), object(1)).Draw(t, "details")}
	case event.TypeUsageUpdated:
		return event.UsageUpdated{
			InputTokens: number().Draw(t, "in"), OutputTokens: number().Draw(t, "out"), CachedInputTokens: number().Draw(t, "cached"),
			Cost: rapid.Ptr(rapid.Float64Range(0, 1e12), true).Draw(t, "cost"), Currency: rapid.Ptr(id(), true).Draw(t, "currency"), Final: flag(),
		}
	default:
		return event.ProviderMetadata{
			Provider: text(event.MaxNameBytes).Draw(t, "provider"), Model: text(event.MaxNameBytes).Draw(t, "model"),
			Metadata: `{"region":"eu","attempt":2,"cache_hit":null}`,
		}
	}
}

func threadState(t *rapid.T) *event.ThreadState {
	switch rapid.IntRange(0, 2).Draw(t, "durability") {
	case 0:
		return nil
	case 1:
		return event.Ephemeral()
	default:
		return event.Committed(rapid.Uint64Max(event.MaxInteger).Draw(t, "revision"), id().Draw(t, "head"))
	}
}

func interrupt(t *rapid.T) event.InterruptRequested {
	d := event.InterruptRequested{InterruptID: id().Draw(t, "interrupt"), AgentID: id().Draw(t, "agent")}
	n := rapid.IntRange(1, 3).Draw(t, "how many")
	if rapid.Bool().Draw(t, "form") {
		d.InterruptType, d.Prompt = event.InterruptFormInput, text(event.MaxPromptBytes).Draw(t, "prompt")
		for i := range n {
			d.Fields = append(d.Fields, event.FormField{
				FieldName: "field" + strconv.Itoa(i), FieldLabel: optionalText(event.MaxNameBytes).Draw(t, "label"),
				FieldDescription: optionalText(event.MaxMessageBytes).Draw(t, "description"), FieldType: "select",
				FieldValues: rapid.SampledFrom([][]string{nil, {"a", "b"}}).Draw(t, "values"), Required: rapid.Bool().Draw(t, "required"),
				DefaultValue: rapid.OneOf(rapid.Just(event.Value("")), value(0)).Draw(t, "default"),
				Placeholder:  optionalText(event.MaxNameBytes).Draw(t, "placeholder"),
			})
		}
		return d
	}
	d.InterruptType = event.InterruptToolApproval
	for i := range n {
		d.ToolApprovals = append(d.ToolApprovals, event.ToolApproval{
			ToolCallID: "call-" + strconv.Itoa(i), ToolName: toolID().Draw(t, "tool"), ToolArgs: object(3).Draw(t, "arguments"),
			AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}[:n],
		})
	}
	return d
}
