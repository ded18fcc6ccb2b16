package event

// judgeInterrupt is rule 6, and what an approval needs to be decided on: a call
// that is open and whose arguments are known.
func (m *Machine) judgeInterrupt(d InterruptRequested) *ViolationError {
	for _, a := range d.ToolApprovals {
		it := m.items[tool(a.ToolCallID)]
		switch {
		case it == nil:
			return broken(6, "an interrupt names a tool call that is not open")
		case it.anywhere:
			return broken(6, "an interrupt names a tool call that was decided before")
		case it.name != a.ToolName:
			return broken(6, "an interrupt names another tool than the call")
		case !it.argumentsComplete(&m.bounds):
			return broken(4, "the joined arguments are not one acceptable JSON object")
		case m.delegates(a.ToolCallID):
			return broken(7, "an interrupt names a tool call that has an open namespace")
		case !it.asksFor(a.ToolArgs, &m.bounds):
			return broken(6, "an interrupt shows other arguments than those of the call")
		}
	}
	return nil
}

// judgeInterrupted is rule 6, and rule 5 for a run that will be resumed: only
// tool calls that wait stay open.
func (m *Machine) judgeInterrupted(d RunInterrupted) *ViolationError {
	switch {
	case m.interrupt == nil:
		return broken(6, "run.interrupted without interrupt.requested")
	case d.InterruptID != m.interrupt.InterruptID:
		return broken(6, "run.interrupted names another interrupt")
	case d.Reason != m.interrupt.InterruptType.Reason():
		return broken(6, "the reason is not that of the interrupt")
	case len(m.spaces) > 1:
		return broken(5, "a namespace is open at the end of the run")
	}
	for _, it := range m.items {
		if !it.waits() {
			return broken(5, "something that does not wait is open at run.interrupted")
		}
	}
	for _, a := range m.interrupt.ToolApprovals {
		if m.items[tool(a.ToolCallID)] == nil {
			return broken(6, "a tool call that waits for a decision has ended")
		}
	}
	return nil
}

// judgeFinished is rule 5: success leaves nothing open. A namespace is never open
// without the tool call that it was entered for.
func (m *Machine) judgeFinished() *ViolationError {
	if len(m.items) > 0 {
		return broken(5, "text, reasoning or a tool call is open at run.finished")
	}
	return nil
}
