package eventproto

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/event"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
)

// ToProto gives the message of an event. Errors: those of event.Validate with
// the default bounds.
func ToProto(e event.Event) (*eventv1.Event, error) {
	if err := event.Validate(e, event.Bounds{}); err != nil {
		return nil, err
	}
	p := &eventv1.Event{
		Version: event.Version, RunId: e.RunID, ConversationId: e.ConversationID, Sequence: e.Sequence,
		Timestamp: timestamppb.New(e.Timestamp), Namespace: e.Namespace,
	}
	switch d := e.Data.(type) {
	case event.RunStarted:
		p.Data = &eventv1.Event_RunStarted{RunStarted: &eventv1.RunStarted{
			MessageId: d.MessageID, HarnessId: d.HarnessID, AdapterVersion: d.AdapterVersion, ProviderRunId: d.ProviderRunID,
		}}
	case event.RunFinished:
		p.Data = &eventv1.Event_RunFinished{RunFinished: &eventv1.RunFinished{
			StopReason: d.StopReason, ThreadState: threadState(d.ThreadState),
		}}
	case event.RunInterrupted:
		p.Data = &eventv1.Event_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{
			InterruptId: d.InterruptID, Reason: string(d.Reason),
		}}
	case event.RunCancelled:
		p.Data = &eventv1.Event_RunCancelled{RunCancelled: &eventv1.RunCancelled{
			Reason: string(d.Reason), SideEffectStatus: string(d.SideEffectStatus),
		}}
	case event.RunError:
		p.Data = &eventv1.Event_RunError{RunError: &eventv1.RunError{
			Code: d.Code, Message: d.Message, Retryable: d.Retryable, RetryAfterSeconds: d.RetryAfterSeconds,
			SideEffectStatus: string(d.SideEffectStatus),
		}}
	case event.TextStarted:
		p.Data = &eventv1.Event_TextStarted{TextStarted: &eventv1.TextStarted{MessageId: d.MessageID}}
	case event.TextDelta:
		p.Data = &eventv1.Event_TextDelta{TextDelta: &eventv1.TextDelta{MessageId: d.MessageID, Delta: d.Delta}}
	case event.TextFinished:
		p.Data = &eventv1.Event_TextFinished{TextFinished: &eventv1.TextFinished{MessageId: d.MessageID}}
	case event.ReasoningStarted:
		p.Data = &eventv1.Event_ReasoningStarted{ReasoningStarted: &eventv1.ReasoningStarted{MessageId: d.MessageID}}
	case event.ReasoningDelta:
		p.Data = &eventv1.Event_ReasoningDelta{ReasoningDelta: &eventv1.ReasoningDelta{MessageId: d.MessageID, Delta: d.Delta}}
	case event.ReasoningFinished:
		p.Data = &eventv1.Event_ReasoningFinished{ReasoningFinished: &eventv1.ReasoningFinished{MessageId: d.MessageID}}
	case event.ToolStarted:
		p.Data = &eventv1.Event_ToolStarted{ToolStarted: &eventv1.ToolStarted{
			ToolCallId: d.ToolCallID, ToolName: d.ToolName, Arguments: []byte(d.Arguments), ParentMessageId: d.ParentMessageID,
		}}
	case event.ToolArgumentsDelta:
		p.Data = &eventv1.Event_ToolArgumentsDelta{ToolArgumentsDelta: &eventv1.ToolArgumentsDelta{
			ToolCallId: d.ToolCallID, Delta: d.Delta,
		}}
	case event.ToolFinished:
		p.Data = &eventv1.Event_ToolFinished{ToolFinished: &eventv1.ToolFinished{
			ToolCallId: d.ToolCallID, Result: []byte(d.Result), ResultRef: d.ResultRef,
		}}
	case event.ToolError:
		p.Data = &eventv1.Event_ToolError{ToolError: &eventv1.ToolError{
			ToolCallId: d.ToolCallID, Code: d.Code, Message: d.Message, Retryable: d.Retryable,
		}}
	case event.InterruptRequested:
		p.Data = &eventv1.Event_InterruptRequested{InterruptRequested: interruptRequested(d)}
	case event.NamespaceEntered:
		p.Data = &eventv1.Event_NamespaceEntered{NamespaceEntered: &eventv1.NamespaceEntered{
			AgentId: d.AgentID, AgentName: d.AgentName, ParentToolCallId: d.ParentToolCallID,
		}}
	case event.NamespaceExited:
		p.Data = &eventv1.Event_NamespaceExited{NamespaceExited: &eventv1.NamespaceExited{
			AgentId: d.AgentID, ParentToolCallId: d.ParentToolCallID, Outcome: string(d.Outcome),
		}}
	case event.Warning:
		p.Data = &eventv1.Event_Warning{Warning: &eventv1.Warning{Code: d.Code, Message: d.Message, Details: text(d.Details)}}
	case event.UsageUpdated:
		p.Data = &eventv1.Event_UsageUpdated{UsageUpdated: &eventv1.UsageUpdated{
			InputTokens: d.InputTokens, OutputTokens: d.OutputTokens, CachedInputTokens: d.CachedInputTokens,
			Cost: d.Cost, Currency: d.Currency, Final: d.Final,
		}}
	case event.ProviderMetadata:
		p.Data = &eventv1.Event_ProviderMetadata{ProviderMetadata: &eventv1.ProviderMetadata{
			Provider: d.Provider, Model: d.Model, Metadata: []byte(d.Metadata),
		}}
	default:
		return nil, &event.ViolationError{Sequence: e.Sequence, Field: "data", Reason: "an unknown payload"}
	}
	return p, nil
}

func threadState(s *event.ThreadState) *eventv1.ThreadState {
	if s == nil {
		return nil
	}
	return &eventv1.ThreadState{
		Durability: string(s.Durability), DurableRevision: s.DurableRevision, HeadRef: s.HeadRef,
	}
}

func interruptRequested(d event.InterruptRequested) *eventv1.InterruptRequested {
	p := &eventv1.InterruptRequested{InterruptId: d.InterruptID, AgentId: d.AgentID}
	if d.InterruptType == event.InterruptFormInput {
		form := &eventv1.FormInput{Prompt: d.Prompt}
		for _, f := range d.Fields {
			form.Fields = append(form.Fields, &eventv1.FormField{
				FieldName: f.FieldName, FieldLabel: f.FieldLabel, FieldDescription: f.FieldDescription,
				FieldType: f.FieldType, FieldValues: f.FieldValues, Required: f.Required,
				DefaultValue: text(f.DefaultValue), Placeholder: f.Placeholder,
			})
		}
		p.Request = &eventv1.InterruptRequested_FormInput{FormInput: form}
		return p
	}
	approvals := &eventv1.ToolApprovals{}
	for _, a := range d.ToolApprovals {
		decisions := make([]string, len(a.AllowedDecisions))
		for i, decision := range a.AllowedDecisions {
			decisions[i] = string(decision)
		}
		approvals.Approvals = append(approvals.Approvals, &eventv1.ToolApproval{
			ToolCallId: a.ToolCallID, ToolName: a.ToolName, ToolArgs: []byte(a.ToolArgs), AllowedDecisions: decisions,
		})
	}
	p.Request = &eventv1.InterruptRequested_ToolApproval{ToolApproval: approvals}
	return p
}

// text is JSON text that may be absent.
func text[T ~string](s T) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
