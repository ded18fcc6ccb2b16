package eventproto

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"cofferdam.dev/pkg/event"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
)

// FromProto gives the event of a message. Errors: those of event.Validate with
// the default bounds, and a *event.ViolationError for what only a message can
// have wrong: another version, a field that is not known, no payload.
func FromProto(p *eventv1.Event) (event.Event, error) {
	switch {
	case p == nil:
		return event.Event{}, &event.ViolationError{Reason: "no event"}
	case p.GetVersion() != event.Version:
		return event.Event{}, violation(p, "version", "not one of the allowed values")
	case p.GetTimestamp().CheckValid() != nil:
		return event.Event{}, violation(p, "timestamp", "not a time of RFC 3339")
	case !wellFormed(p.ProtoReflect()):
		return event.Event{}, violation(p, "", "a field that is not known, or an empty one")
	}
	e := event.Event{
		RunID: p.GetRunId(), ConversationID: p.GetConversationId(), Sequence: p.GetSequence(), Timestamp: p.GetTimestamp().AsTime(),
	}
	if len(p.GetNamespace()) > 0 {
		e.Namespace = p.GetNamespace()
	}
	e.Data = payload(p)
	if e.Data == nil {
		return event.Event{}, violation(p, "data", "required")
	}
	if err := event.Validate(e, event.Bounds{}); err != nil {
		return event.Event{}, err
	}
	return e, nil
}

func violation(p *eventv1.Event, field, reason string) error {
	return &event.ViolationError{Sequence: p.GetSequence(), Field: field, Reason: reason}
}

// payload is nil where the message has none.
func payload(p *eventv1.Event) event.Data {
	switch d := p.GetData().(type) {
	case *eventv1.Event_RunStarted:
		x := d.RunStarted
		return event.RunStarted{
			MessageID: x.GetMessageId(), HarnessID: x.GetHarnessId(), AdapterVersion: x.GetAdapterVersion(),
			ProviderRunID: x.GetProviderRunId(),
		}
	case *eventv1.Event_RunFinished:
		x := d.RunFinished
		return event.RunFinished{StopReason: x.GetStopReason(), ThreadState: threadStateFrom(x.GetThreadState())}
	case *eventv1.Event_RunInterrupted:
		x := d.RunInterrupted
		return event.RunInterrupted{InterruptID: x.GetInterruptId(), Reason: event.InterruptReason(x.GetReason())}
	case *eventv1.Event_RunCancelled:
		x := d.RunCancelled
		return event.RunCancelled{
			Reason:           event.CancelReason(x.GetReason()),
			SideEffectStatus: event.SideEffectStatus(x.GetSideEffectStatus()),
		}
	case *eventv1.Event_RunError:
		x := d.RunError
		return event.RunError{
			Code: x.GetCode(), Message: x.GetMessage(), Retryable: x.GetRetryable(),
			RetryAfterSeconds: x.RetryAfterSeconds, SideEffectStatus: event.SideEffectStatus(x.GetSideEffectStatus()),
		}
	case *eventv1.Event_TextStarted:
		x := d.TextStarted
		return event.TextStarted{MessageID: x.GetMessageId()}
	case *eventv1.Event_TextDelta:
		x := d.TextDelta
		return event.TextDelta{MessageID: x.GetMessageId(), Delta: x.GetDelta()}
	case *eventv1.Event_TextFinished:
		x := d.TextFinished
		return event.TextFinished{MessageID: x.GetMessageId()}
	case *eventv1.Event_ReasoningStarted:
		x := d.ReasoningStarted
		return event.ReasoningStarted{MessageID: x.GetMessageId()}
	case *eventv1.Event_ReasoningDelta:
		x := d.ReasoningDelta
		return event.ReasoningDelta{MessageID: x.GetMessageId(), Delta: x.GetDelta()}
	case *eventv1.Event_ReasoningFinished:
		x := d.ReasoningFinished
		return event.ReasoningFinished{MessageID: x.GetMessageId()}
	case *eventv1.Event_ToolStarted:
		x := d.ToolStarted
		return event.ToolStarted{
			ToolCallID: x.GetToolCallId(), ToolName: x.GetToolName(), Arguments: event.Object(x.GetArguments()),
			ParentMessageID: x.GetParentMessageId(),
		}
	case *eventv1.Event_ToolArgumentsDelta:
		x := d.ToolArgumentsDelta
		return event.ToolArgumentsDelta{ToolCallID: x.GetToolCallId(), Delta: x.GetDelta()}
	case *eventv1.Event_ToolFinished:
		x := d.ToolFinished
		return event.ToolFinished{ToolCallID: x.GetToolCallId(), Result: event.Value(x.GetResult()), ResultRef: x.GetResultRef()}
	case *eventv1.Event_ToolError:
		x := d.ToolError
		return event.ToolError{
			ToolCallID: x.GetToolCallId(), Code: x.GetCode(), Message: x.GetMessage(), Retryable: x.GetRetryable(),
		}
	case *eventv1.Event_InterruptRequested:
		return interruptFrom(d.InterruptRequested)
	case *eventv1.Event_NamespaceEntered:
		x := d.NamespaceEntered
		return event.NamespaceEntered{
			AgentID: x.GetAgentId(), AgentName: x.GetAgentName(), ParentToolCallID: x.GetParentToolCallId(),
		}
	case *eventv1.Event_NamespaceExited:
		x := d.NamespaceExited
		return event.NamespaceExited{
			AgentID: x.GetAgentId(), ParentToolCallID: x.GetParentToolCallId(),
			Outcome: event.NamespaceOutcome(x.GetOutcome()),
		}
	case *eventv1.Event_Warning:
		x := d.Warning
		return event.Warning{Code: x.GetCode(), Message: x.GetMessage(), Details: event.Object(x.GetDetails())}
	case *eventv1.Event_UsageUpdated:
		x := d.UsageUpdated
		return event.UsageUpdated{
			InputTokens: x.InputTokens, OutputTokens: x.OutputTokens, CachedInputTokens: x.CachedInputTokens,
			Cost: x.Cost, Currency: x.Currency, Final: x.GetFinal(),
		}
	case *eventv1.Event_ProviderMetadata:
		x := d.ProviderMetadata
		return event.ProviderMetadata{Provider: x.GetProvider(), Model: x.GetModel(), Metadata: event.Object(x.GetMetadata())}
	default:
		return nil
	}
}

func threadStateFrom(x *eventv1.ThreadState) *event.ThreadState {
	if x == nil {
		return nil
	}
	return &event.ThreadState{
		Durability: event.Durability(x.GetDurability()), DurableRevision: x.DurableRevision, HeadRef: x.HeadRef,
	}
}

func interruptFrom(x *eventv1.InterruptRequested) event.Data {
	d := event.InterruptRequested{InterruptID: x.GetInterruptId(), AgentID: x.GetAgentId()}
	switch r := x.GetRequest().(type) {
	case *eventv1.InterruptRequested_FormInput:
		d.InterruptType, d.Prompt = event.InterruptFormInput, r.FormInput.GetPrompt()
		for _, f := range r.FormInput.GetFields() {
			d.Fields = append(d.Fields, event.FormField{
				FieldName: f.GetFieldName(), FieldLabel: f.GetFieldLabel(), FieldDescription: f.GetFieldDescription(),
				FieldType: f.GetFieldType(), FieldValues: f.GetFieldValues(), Required: f.GetRequired(),
				DefaultValue: event.Value(f.GetDefaultValue()), Placeholder: f.GetPlaceholder(),
			})
		}
	case *eventv1.InterruptRequested_ToolApproval:
		d.InterruptType = event.InterruptToolApproval
		for _, a := range r.ToolApproval.GetApprovals() {
			approval := event.ToolApproval{
				ToolCallID: a.GetToolCallId(), ToolName: a.GetToolName(), ToolArgs: event.Object(a.GetToolArgs()),
			}
			for _, decision := range a.GetAllowedDecisions() {
				approval.AllowedDecisions = append(approval.AllowedDecisions, event.Decision(decision))
			}
			d.ToolApprovals = append(d.ToolApprovals, approval)
		}
	}
	return d
}

// wellFormed reports whether a message and all in it are there and came without
// a field that this version does not know.
func wellFormed(m protoreflect.Message) bool {
	if !m.IsValid() || len(m.GetUnknown()) > 0 {
		return false
	}
	ok := true
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				ok = ok && wellFormed(v.List().Get(i).Message())
			}
		default:
			ok = wellFormed(v.Message())
		}
		return ok
	})
	return ok
}
