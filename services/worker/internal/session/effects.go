package session

import (
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// effect is what is known of one effect outside.
type effect int

const (
	effectNone effect = iota
	effectKnown
	effectPossible
)

// effects are those of a run, by a key that tells their kinds apart. What goes
// through a facade is known by how its call went; of a tool that a harness has
// itself, only its events tell.
type effects map[string]effect

// toolKey is of a call that only events tell of.
func toolKey(callID string) string { return "tool:" + callID }

// see takes what an event tells.
func (e effects) see(d event.Data, brokered func(toolID string) bool) {
	switch d := d.(type) {
	case event.ToolStarted:
		if !brokered(d.ToolName) {
			e.begin(toolKey(d.ToolCallID))
		}
	case event.ToolFinished:
		if e[toolKey(d.ToolCallID)] == effectPossible {
			e[toolKey(d.ToolCallID)] = effectKnown
		}
	}
}

// begin says that an effect may happen from now on.
func (e effects) begin(key string) { e[key] = effectPossible }

// end says how it went. A call that is repeated under its key may have had its
// effect before, and a refusal says nothing of that.
func (e effects) end(key string, before effect, err error) {
	switch {
	case err == nil:
		e[key] = effectKnown
	case refused(err):
		e[key] = before
	}
}

// status is known only where every effect gave its result: one that ended in an
// error may have happened all the same.
func (e effects) status() event.SideEffectStatus {
	most := effectNone
	for _, one := range e {
		most = max(most, one)
	}
	switch most {
	case effectPossible:
		return event.SideEffectsPossible
	case effectKnown:
		return event.SideEffectsKnown
	default:
		return event.SideEffectsNone
	}
}

// refused says that an error of a facade means that nothing has happened: its
// service said so before it acted, or the request was never sent. An answer that
// only says that the run is over (stale_lease, an expired capability) may follow
// an attempt that was lost.
func refused(err error) bool {
	switch fault.CodeOf(err) {
	case fault.InvalidRequest, fault.RequestTooLarge, fault.ToolArgumentsInvalid, fault.HandleInvalid,
		fault.Unauthenticated, fault.CapabilityMissing, fault.CapabilityInvalid, fault.AudienceMismatch,
		fault.CallerNotAllowed, fault.CapabilityScope, fault.ToolNotAllowed, fault.ToolDenied, fault.MemoryScopeDenied, fault.HandleDenied,
		fault.AccessDenied, fault.ApprovalRequired, fault.NotFound, fault.HandleExpired,
		fault.MemoryRevisionConflict, fault.MemoryRejected, fault.IdempotencyConflict, fault.RateLimited, fault.Capacity, fault.ToolUnavailable,
		fault.NotImplemented:
		return true
	default:
		return false
	}
}
