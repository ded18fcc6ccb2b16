package audit

import (
	"context"
	"time"
)

// Kinds of a record.
const (
	KindDecision = "decision"
	KindOutcome  = "outcome"
)

// Decisions.
const (
	Allowed = "allowed"
	Refused = "refused"
)

// Outcomes of an allowed call.
const (
	// OutcomeOK and OutcomeToolError are answers of the tool.
	OutcomeOK        = "ok"
	OutcomeToolError = "tool_error"
	// OutcomeAsked is a tool that asks the user before it goes on.
	OutcomeAsked = "asked"
	// OutcomeReplayed is an answer that the ledger had.
	OutcomeReplayed = "replayed"
	// OutcomeNotCalled is a call that provably did not leave.
	OutcomeNotCalled = "not_called"
	// OutcomeUnknown is a call of which nobody knows what it did.
	OutcomeUnknown = "unknown"
)

// Status of side effects, as in the contract's errors.
const (
	EffectsNone     = "none"
	EffectsPossible = "possible"
	EffectsKnown    = "known"
)

// Record is one line of the audit.
type Record struct {
	Time time.Time `json:"time"`
	// Call joins the records of one request.
	Call string `json:"call"`
	Kind string `json:"kind"`
	// Subject is a keyed digest, see Digester; empty where no record was found.
	Subject    string `json:"subject"`
	BindingID  string `json:"binding_id"`
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
	RunID      string `json:"run_id"`
	Key        string `json:"key"`
	ToolID     string `json:"tool_id"`
	ToolCallID string `json:"tool_call_id"`
	Risk       string `json:"risk,omitempty"`
	// Arguments is their digest; empty where they were not acceptable.
	Arguments string `json:"arguments,omitempty"`
	Decision  string `json:"decision"`
	// Reason is a fault code where there is one.
	Reason string `json:"reason,omitempty"`
	// DurationMS is the time since the request came, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
	// Outcome and SideEffects are of a KindOutcome alone.
	Outcome     string `json:"outcome,omitempty"`
	SideEffects string `json:"side_effects,omitempty"`
	Incident    string `json:"incident_id,omitempty"`
}

// Log keeps records. It is safe for concurrent use.
type Log interface {
	// Append returns when the record will survive a crash of the machine. After an
	// error it may be kept or not. It returns when ctx ends.
	Append(ctx context.Context, r Record) error
}
