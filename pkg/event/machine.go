package event

import (
	"iter"
	"slices"
	"time"
)

// Machine judges the events of one run in their order: the eleven rules of the
// contract, "The lifecycle machine", and all bounds. After the first violation
// it refuses everything but Close. A machine is not safe for concurrent use.
//
// Its state is a function of the accepted events and of what a resume carried
// over: Replay rebuilds it from a log.
type Machine struct {
	runID          string
	conversationID string
	bounds         Bounds

	next     uint64 // the sequence that comes next
	events   int    // how many there were: the same number
	bytes    int    // of all events so far, as JSON
	failed   *ViolationError
	terminal *Event

	opened    int // how many things were ever opened: gives them an order
	items     map[itemKey]*item
	ended     map[itemKey]struct{}
	spaces    map[string]*space
	interrupt *InterruptRequested
}

// Carried is a tool call that a resumed run has not to start: it waited while
// the run before was interrupted.
type Carried struct {
	ToolCallID string
	// Decision on the call; empty for one that delegates to a subagent that was
	// interrupted. A call that was rejected cannot finish.
	Decision Decision
}

// NewMachine makes the machine of a run. Bounds of zero are the defaults, and
// none can be raised. carried are the tool calls that count as started because
// the run resumes an interrupt; see Pending.
func NewMachine(runID, conversationID string, b Bounds, carried ...Carried) *Machine {
	m := &Machine{
		runID: runID, conversationID: conversationID, bounds: b.effective(),
		items:  make(map[itemKey]*item),
		ended:  make(map[itemKey]struct{}),
		spaces: map[string]*space{"": {}},
	}
	for _, c := range carried {
		m.open(tool(c.ToolCallID), &item{
			anywhere: true, argumentsDone: true, decision: c.Decision, suspended: c.Decision == "",
		})
	}
	return m
}

// Accept judges an event and takes it into the run. Errors: ErrEmptyDelta, which
// changes nothing; *ViolationError, after which the machine refuses everything
// but Close.
func (m *Machine) Accept(e Event) error {
	if m.failed != nil {
		return m.failed
	}
	if IsEmptyDelta(e.Data) {
		return ErrEmptyDelta
	}
	if err := m.accept(e); err != nil {
		m.failed = err
		return err
	}
	return nil
}

// Check judges an event as Accept would, and changes nothing. It is for a
// terminal that may only be taken once a commit has succeeded (rule 9): until
// then the run can still end in another way.
func (m *Machine) Check(e Event) error {
	if m.failed != nil {
		return m.failed
	}
	if IsEmptyDelta(e.Data) {
		return ErrEmptyDelta
	}
	if _, err := m.judge(e); err != nil {
		return err
	}
	return nil
}

func (m *Machine) accept(e Event) *ViolationError {
	size, err := m.judge(e)
	if err != nil {
		return err
	}
	m.next++
	m.events++
	m.bytes += size
	m.apply(e)
	return nil
}

// Stamp gives a draft the envelope of the next event.
func (m *Machine) Stamp(d Draft, at time.Time) Event {
	return d.Event(m.runID, m.conversationID, m.next, at)
}

// Next is the sequence that the next event must have: the number of events so
// far.
func (m *Machine) Next() uint64 { return m.next }

// Bytes is the size of all events so far, as JSON.
func (m *Machine) Bytes() int { return m.bytes }

// Terminal is the event that ended the run. A stream that ends without one was
// cut off (rule 8): the control plane ends the run with Close.
func (m *Machine) Terminal() (Event, bool) {
	if m.terminal == nil {
		return Event{}, false
	}
	return *m.terminal, true
}

// Interrupt is the interrupt that the run has requested.
func (m *Machine) Interrupt() (InterruptRequested, bool) {
	if m.interrupt == nil {
		return InterruptRequested{}, false
	}
	return *m.interrupt, true
}

// Replay takes the events of a log. It stops at the first error, of the log or
// of the machine.
func (m *Machine) Replay(log iter.Seq2[Event, error]) error {
	for e, err := range log {
		if err != nil {
			return err
		}
		if err := m.Accept(e); err != nil {
			return err
		}
	}
	return nil
}

// Pending are the tool calls that wait for the answer to an interrupt, in the
// order in which they were opened: what the machine of the resumed run has to
// be given, with the decisions filled in. It is empty unless the run ended by
// run.interrupted.
func (m *Machine) Pending() []Carried {
	if m.terminal == nil || m.terminal.Type() != TypeRunInterrupted {
		return nil
	}
	var pending []Carried
	for _, it := range m.inOrder() {
		pending = append(pending, Carried{ToolCallID: it.key.id})
	}
	return pending
}

// inOrder are the open items, the first opened first.
func (m *Machine) inOrder() []*item {
	items := make([]*item, 0, len(m.items))
	for _, it := range m.items {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int { return a.order - b.order })
	return items
}
