package fence

import "time"

// ProtocolVersion is the only version of the worker protocol that is spoken.
const ProtocolVersion = 1

// Envelope is the identity and fencing envelope of the Sandbox Worker Protocol
// v1: what every mutating request, event, state call and tool call carries.
type Envelope struct {
	// BindingID is opaque: hs_ and a keyed digest.
	BindingID string
	// Epoch rises when a conversation is cleared.
	Epoch uint32
	// Generation of the lease; the first is 1.
	Generation uint32
	// RunID is empty only in calls that concern the lease and no run.
	RunID string
	// RequestID is for correlation.
	RequestID string
	// IdempotencyKey names the effect within its run.
	IdempotencyKey string
	// Traceparent correlates and never authorizes; may be empty.
	Traceparent string
	// Deadline is the moment after which nothing may be done for the request.
	Deadline time.Time
}
