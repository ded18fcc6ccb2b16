package event

import "slices"

// Type of an event, as it stands in the envelope.
type Type string

// The types of version 1.
const (
	TypeRunStarted         Type = "run.started"
	TypeRunFinished        Type = "run.finished"
	TypeRunInterrupted     Type = "run.interrupted"
	TypeRunCancelled       Type = "run.cancelled"
	TypeRunError           Type = "run.error"
	TypeTextStarted        Type = "text.started"
	TypeTextDelta          Type = "text.delta"
	TypeTextFinished       Type = "text.finished"
	TypeReasoningStarted   Type = "reasoning.started"
	TypeReasoningDelta     Type = "reasoning.delta"
	TypeReasoningFinished  Type = "reasoning.finished"
	TypeToolStarted        Type = "tool.started"
	TypeToolArgumentsDelta Type = "tool.arguments.delta"
	TypeToolFinished       Type = "tool.finished"
	TypeToolError          Type = "tool.error"
	TypeInterruptRequested Type = "interrupt.requested"
	TypeNamespaceEntered   Type = "namespace.entered"
	TypeNamespaceExited    Type = "namespace.exited"
	TypeWarning            Type = "warning"
	TypeUsageUpdated       Type = "usage.updated"
	TypeProviderMetadata   Type = "provider.metadata"
)

// Types are all types, in the order of the contract.
func Types() []Type {
	return []Type{
		TypeRunStarted, TypeRunFinished, TypeRunInterrupted, TypeRunCancelled, TypeRunError,
		TypeTextStarted, TypeTextDelta, TypeTextFinished,
		TypeReasoningStarted, TypeReasoningDelta, TypeReasoningFinished,
		TypeToolStarted, TypeToolArgumentsDelta, TypeToolFinished, TypeToolError,
		TypeInterruptRequested, TypeNamespaceEntered, TypeNamespaceExited,
		TypeWarning, TypeUsageUpdated, TypeProviderMetadata,
	}
}

// Known reports whether version 1 has the type.
func (t Type) Known() bool { return slices.Contains(Types(), t) }

// Terminal reports whether an event of the type ends its run.
func (t Type) Terminal() bool {
	switch t {
	case TypeRunFinished, TypeRunInterrupted, TypeRunCancelled, TypeRunError:
		return true
	default:
		return false
	}
}

// Closing reports whether an event of the type only closes what is open: text,
// reasoning, a tool call or a namespace.
func (t Type) Closing() bool {
	switch t {
	case TypeTextFinished, TypeReasoningFinished, TypeToolFinished, TypeToolError, TypeNamespaceExited:
		return true
	default:
		return false
	}
}
