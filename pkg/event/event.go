package event

import (
	"reflect"
	"time"
)

// Version is the only version of the envelope.
const Version = 1

// Event is one canonical event with its envelope.
type Event struct {
	// RunID and ConversationID are ids (see ValidID) and the same in all events
	// of a run.
	RunID          string
	ConversationID string
	// Sequence starts at 0 and rises by one.
	Sequence uint64
	// Timestamp says when it happened. It is never used for ordering.
	Timestamp time.Time
	// Namespace is the path of subagents; empty for the root.
	Namespace []string
	// Data is the payload; it decides the type.
	Data Data
}

// Type of the event, "" without a payload.
func (e Event) Type() Type {
	if !isPayload(e.Data) {
		return ""
	}
	return e.Data.Type()
}

// Draft is the event without its envelope.
func (e Event) Draft() Draft { return Draft{Namespace: e.Namespace, Data: e.Data} }

// Draft is what a harness emits: no envelope and no sequence.
type Draft struct {
	// Namespace is the path of subagents; empty for the root.
	Namespace []string
	// Data is the payload; it decides the type.
	Data Data
}

// Event is the draft in its envelope.
func (d Draft) Event(runID, conversationID string, sequence uint64, at time.Time) Event {
	return Event{
		RunID: runID, ConversationID: conversationID, Sequence: sequence, Timestamp: at,
		Namespace: d.Namespace, Data: d.Data,
	}
}

// Data is the payload of an event: one of the payload structs of this package,
// as a value.
type Data interface {
	// Type that the payload belongs to.
	Type() Type
	// check finds what a single payload can break.
	check(c *checker)
}

// isPayload tells a payload from nil and from a pointer to one, which has the
// methods of Data too.
func isPayload(d Data) bool {
	return d != nil && reflect.TypeOf(d).Kind() == reflect.Struct
}

// IsEmptyDelta reports whether a payload is a delta of nothing. Such a delta is
// dropped before it gets a sequence, not forwarded.
func IsEmptyDelta(d Data) bool {
	switch d := d.(type) {
	case TextDelta:
		return d.Delta == ""
	case ReasoningDelta:
		return d.Delta == ""
	case ToolArgumentsDelta:
		return d.Delta == ""
	default:
		return false
	}
}
