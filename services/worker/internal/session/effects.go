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
type effects map[string]*fate

// fate is what became of one effect. Several calls may be under way for it: they
// have one key, under which it happens at most once.
type fate struct {
	settled  effect
	underway int
}

// toolKey is of a call that only events tell of.
func toolKey(callID string) string { return "tool:" + callID }

func (e effects) of(key string) *fate {
	f := e[key]
	if f == nil {
		f = &fate{}
		e[key] = f
	}
	return f
}

// see takes what an event tells.
func (e effects) see(d event.Data, brokered func(toolID string) bool) {
	switch d := d.(type) {
	case event.ToolStarted:
		if !brokered(d.ToolName) {
			e.suppose(toolKey(d.ToolCallID))
		}
	case event.ToolFinished:
		if f := e[toolKey(d.ToolCallID)]; f != nil {
			f.settled = effectKnown
		}
	}
}

// suppose says that an effect may have happened, of which only an event can tell
// more.
func (e effects) suppose(key string) { e.of(key).settled = effectPossible }

// begin says that an effect may happen until its call has ended.
func (e effects) begin(key string) { e.of(key).underway++ }

// end says how a call went. A result is that of the effect, whatever other calls
// under its key were told. A refusal says nothing of them: they may have had the
// effect before, or have it still.
func (e effects) end(key string, err error) {
	f := e.of(key)
	f.underway--
	switch {
	case err == nil:
		f.settled = effectKnown
	case refused(err), f.settled == effectKnown:
	default:
		f.settled = effectPossible
	}
}

// status is known only where every effect gave its result: one that ended in an
// error may have happened all the same.
func (e effects) status() event.SideEffectStatus {
	most := effectNone
	for _, f := range e {
		most = max(most, f.settled)
		if f.underway > 0 {
			most = effectPossible
		}
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
