package event

// What is kept of a run's budget so that it can always be ended within it: for
// each thing that is open, and for the terminal. A closing event that the
// control plane makes is at most five ids, eight levels of namespace and a fixed
// sentence long; a terminal has a message of at most MaxMessageBytes, which
// escaping can double.
const (
	reserveOpen     = 4 << 10
	reserveTerminal = 16 << 10
)

// judge finds what an event breaks, and measures it. It changes nothing.
func (m *Machine) judge(e Event) (size int, _ *ViolationError) {
	size, err := inspect(e, &m.bounds)
	if err == nil {
		err = m.judgeRun(e)
	}
	if err == nil {
		err = m.judgeData(e)
	}
	if err == nil {
		err = m.judgeBudget(e, size)
	}
	if err != nil {
		err.Sequence = e.Sequence
	}
	return size, err
}

// broken is a violation of a rule of the contract.
func broken(rule int, reason string) *ViolationError {
	return &ViolationError{Rule: rule, Reason: reason}
}

// judgeRun has the rules on the run as a whole: 1, 2, 6 and 7.
func (m *Machine) judgeRun(e Event) *ViolationError {
	t := e.Type()
	switch {
	case m.terminal != nil:
		return broken(1, "an event after the terminal")
	case e.RunID != m.runID:
		return broken(1, "an event of another run")
	case e.ConversationID != m.conversationID:
		return broken(1, "an event of another conversation")
	case e.Sequence < m.next:
		return broken(2, "a sequence that was there already")
	case e.Sequence > m.next:
		return broken(2, "a gap in the sequence")
	case m.next == 0 && t != TypeRunStarted:
		return broken(1, "the first event is not run.started")
	case m.next > 0 && t == TypeRunStarted:
		return broken(1, "run.started comes a second time")
	case m.interrupt != nil && !t.Closing() && (!t.Terminal() || t == TypeRunFinished):
		return broken(6, "only closing events and the end of the run may follow interrupt.requested")
	}
	switch t {
	case TypeNamespaceEntered, TypeNamespaceExited:
		return nil // judged with their data
	case TypeRunStarted, TypeRunFinished, TypeRunInterrupted, TypeRunCancelled, TypeRunError:
		if len(e.Namespace) > 0 {
			return broken(7, "an event of the run itself stands in a namespace")
		}
	default:
		if m.spaces[pathKey(e.Namespace)] == nil {
			return broken(7, "an event in a namespace that is not open")
		}
	}
	return nil
}

// judgeBudget keeps the run within its bounds, the events that close it
// included.
func (m *Machine) judgeBudget(e Event, size int) *ViolationError {
	events, bytes := m.bounds.RunEvents-m.events-1, m.bounds.RunBytes-m.bytes-size
	if !e.Type().Terminal() {
		open := len(m.items) + len(m.spaces) - 1 + opens(e.Type())
		events -= open + 1
		bytes -= open*reserveOpen + reserveTerminal
	}
	switch {
	case events < 0:
		return broken(0, "more events than a run may have")
	case bytes < 0:
		return broken(0, "more bytes than a run may have")
	}
	return nil
}

// opens is by how much an event changes how many things are open.
func opens(t Type) int {
	switch t {
	case TypeTextStarted, TypeReasoningStarted, TypeToolStarted, TypeNamespaceEntered:
		return 1
	default:
		if t.Closing() {
			return -1
		}
		return 0
	}
}

// judgeData has the rules on what opens and closes: 3 to 7 and 10.
func (m *Machine) judgeData(e Event) *ViolationError {
	switch d := e.Data.(type) {
	case TextStarted:
		return m.judgeStart(itemKey{ItemText, d.MessageID}, m.bounds.OpenTexts)
	case TextDelta:
		return m.judgeGoesOn(e, itemKey{ItemText, d.MessageID})
	case TextFinished:
		return m.judgeGoesOn(e, itemKey{ItemText, d.MessageID})
	case ReasoningStarted:
		return m.judgeStart(itemKey{ItemReasoning, d.MessageID}, m.bounds.OpenReasonings)
	case ReasoningDelta:
		return m.judgeGoesOn(e, itemKey{ItemReasoning, d.MessageID})
	case ReasoningFinished:
		return m.judgeGoesOn(e, itemKey{ItemReasoning, d.MessageID})
	case ToolStarted:
		return m.judgeStart(tool(d.ToolCallID), m.bounds.OpenTools)
	case ToolArgumentsDelta:
		return m.judgeArguments(e, d)
	case ToolFinished:
		return m.judgeToolFinished(e, d)
	case ToolError:
		return m.judgeToolEnds(e, d.ToolCallID)
	case NamespaceEntered:
		return m.judgeEntered(e, d)
	case NamespaceExited:
		return m.judgeExited(e, d)
	case InterruptRequested:
		return m.judgeInterrupt(d)
	case RunInterrupted:
		return m.judgeInterrupted(d)
	case RunFinished:
		return m.judgeFinished()
	case RunStarted, RunCancelled, RunError, Warning, UsageUpdated, ProviderMetadata:
		return nil
	default:
		return broken(0, "an unknown payload")
	}
}
