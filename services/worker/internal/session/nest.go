package session

import (
	"context"
	"slices"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// What another agent's work may take of a run: half of its budget, and half of what
// may be open at once. The rest is kept for the harness, whose run must not break
// because somebody else was busy.
const share = 2

// nest is the work of an agent to which a call delegates, as the ToolBroker tells
// of it. It stands in a namespace of that call. What comes in is judged as what a
// harness emits is, but what the rules refuse is left out and ends nothing: the run
// of that agent has its own log.
type nest struct {
	r      *Run
	callID string
	// above is the namespace of the call, and path that of the agent.
	above, path []string
}

// nest gives where to tell of the agent that a call lets work; nil for a call that
// no event tells of.
func (r *Run) nest(callID string) *nest {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.machine.OpenItems() {
		if o.Kind == event.ItemTool && o.ID == callID {
			n := &nest{r: r, callID: callID, above: o.Namespace, path: append(slices.Clone(o.Namespace), callID)}
			r.nests[callID] = n
			return n
		}
	}
	return nil
}

// tell takes an event of the agent, whose namespace is below that of the call. It
// waits for room as Emit does. Errors: cancelled and deadline_exceeded.
func (n *nest) tell(ctx context.Context, d event.Draft) error {
	const op = "session.tell"
	if len(d.Namespace) == 0 || d.Namespace[0] != n.callID || event.IsEmptyDelta(d.Data) {
		return nil // not of this call
	}
	d.Namespace = append(slices.Clone(n.above), d.Namespace...)
	for {
		room, err := n.r.offerNested(n.callID, d)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fault.From(ctx.Err(), op)
		case <-n.r.ctx.Done():
			return fault.From(n.r.ctx.Err(), op)
		}
	}
}

// close closes what the agent has left open. The harness can end the call then.
func (n *nest) close() {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	n.r.closeNest(n.callID)
}

// closeNest closes what is open of the agent to which a call delegates, and hears no
// more of it. A harness may end a call that it does not want to wait for. The caller
// holds the lock.
func (r *Run) closeNest(callID string) {
	n := r.nests[callID]
	if n == nil {
		return
	}
	delete(r.nests, callID)
	if !r.takes() {
		return
	}
	for _, d := range r.machine.Closers(event.RunError{Code: string(fault.ToolOutcomeUnknown)}) {
		if len(d.Namespace) >= len(n.path) && slices.Equal(d.Namespace[:len(n.path)], n.path) {
			r.push(d)
		}
	}
}

// offerNested takes a draft, leaves it out, or gives what to wait for before it can
// be taken.
func (r *Run) offerNested(callID string, d event.Draft) (room <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ctx.Err() != nil:
		return nil, fault.From(r.ctx.Err(), "session.tell")
	case !r.takes(), r.nests[callID] == nil:
		return nil, nil
	case r.queue.full():
		return r.queue.room.wait(), nil
	}
	if !r.roomFor(d.Data) {
		if !r.nested.short {
			r.nested.short = true
			r.push(event.Draft{Data: event.Warning{
				Code: "delegated_work_not_shown", Message: "Another agent has done more than can be shown here. The rest is in the events of its own run.",
			}})
		}
		return nil, nil
	}
	r.nested.bytes += r.push(d)
	r.nested.events++
	return nil, nil
}

// takes reports whether events may still come. The caller holds the lock.
func (r *Run) takes() bool { return !r.queue.ended && r.broken == nil && r.head == headStands }

// nested is what other agents have taken of a run.
type nested struct {
	events, bytes int
	// short says that something was left out for its size.
	short bool
}

// roomFor reports whether there is room for a payload. What ends something always
// has it. The caller holds the lock.
func (r *Run) roomFor(d event.Data) bool {
	var kind event.ItemKind
	var most int
	bounds := event.DefaultBounds().Lower(r.cfg.Bounds) // a profile may have lowered them
	switch d.(type) {
	case event.TextFinished, event.ReasoningFinished, event.ToolFinished, event.ToolError, event.NamespaceExited:
		return true
	case event.TextStarted:
		kind, most = event.ItemText, bounds.OpenTexts
	case event.ReasoningStarted:
		kind, most = event.ItemReasoning, bounds.OpenReasonings
	case event.ToolStarted:
		kind, most = event.ItemTool, bounds.OpenTools
	case event.NamespaceEntered:
		kind, most = event.ItemNamespace, bounds.OpenNamespaces
	}
	if r.nested.events >= bounds.RunEvents/share || r.nested.bytes >= bounds.RunBytes/share {
		return false
	}
	if kind == "" {
		return true
	}
	open := 0
	for _, o := range r.machine.OpenItems() {
		if o.Kind == kind {
			open++
		}
	}
	return open < most/share
}

// push takes a draft into the stream unless the rules refuse it, and gives its
// size. It is no effect of this run. The caller holds the lock.
func (r *Run) push(d event.Draft) int {
	e := r.machine.Stamp(d, r.cfg.Now().UTC())
	before := r.machine.Bytes()
	if r.machine.Check(e) != nil || r.machine.Accept(e) != nil {
		return 0
	}
	size := r.machine.Bytes() - before
	r.queue.push(e, size)
	return size
}
