package harness

import (
	"encoding/json"
	"time"

	"cofferdam.dev/pkg/event"
)

// Turn is one turn.
type Turn struct {
	RunID          string
	ConversationID string
	Message        string
	Files          []File
	Uploads        []Upload
	ClientContext  json.RawMessage
	Deadline       time.Time
}

// File is a file that came with a turn; Files.Read gives its content.
type File struct {
	Handle      string
	DisplayName string
	MIMEType    string
	Size        uint64
}

// Upload is a handle for one file that does not exist yet.
type Upload struct {
	Handle   string
	MaxBytes uint64
}

// Decision is what a person decided about a committed interrupt, and the run
// that carries it out. Exactly one of Form, Dismissed and Tools says what.
type Decision struct {
	RunID          string
	ConversationID string
	// Interrupt as it stands in the log, with its revision.
	Interrupt event.InterruptRequested
	Revision  uint64
	// Form has the values by field name.
	Form json.RawMessage
	// Dismissed leaves a form unanswered, and rejects every call.
	Dismissed bool
	// Tools has one decision for each call that the interrupt names, in its order.
	Tools []ToolDecision
	// Carried are the calls that wait besides those: each delegates to a subagent
	// that was interrupted. They count as started, as the named ones do.
	Carried  []string
	Uploads  []Upload
	Deadline time.Time
}

// ToolDecision decides on one call.
type ToolDecision struct {
	ToolCallID string
	Decision   event.Decision
	// Arguments of an edit: one JSON object that fits the tool's schema.
	Arguments json.RawMessage
}
