package event

import "slices"

// judgeStart is rule 3 and rule 4: an id opens once.
func (m *Machine) judgeStart(key itemKey, most int) *ViolationError {
	_, ended := m.ended[key]
	switch {
	case m.items[key] != nil:
		return broken(key.kind.rule(), "an id that is open opens again")
	case ended:
		return broken(key.kind.rule(), "an id that was closed opens again")
	case m.countOpen(key.kind) >= most:
		return broken(0, "more open at once than allowed")
	}
	return nil
}

// judgeGoesOn is rule 3 and rule 4 for what needs an open id, and rule 7: it
// stays in its namespace.
func (m *Machine) judgeGoesOn(e Event, key itemKey) *ViolationError {
	it := m.items[key]
	switch {
	case it == nil:
		return broken(key.kind.rule(), "an id that is not open")
	case !it.anywhere && !slices.Equal(it.path, e.Namespace):
		return broken(7, "an id goes on in another namespace than it began in")
	}
	return nil
}

func (m *Machine) judgeArguments(e Event, d ToolArgumentsDelta) *ViolationError {
	key := tool(d.ToolCallID)
	if err := m.judgeGoesOn(e, key); err != nil {
		return err
	}
	switch it := m.items[key]; {
	case it.argumentsDone:
		return broken(4, "arguments stream after they were given whole")
	case len(it.arguments)+len(d.Delta) > m.bounds.ArgumentsBytes:
		return broken(0, "more arguments than a tool call may have")
	}
	return nil
}

// judgeToolEnds is rule 4 for both ends of a call.
func (m *Machine) judgeToolEnds(e Event, id string) *ViolationError {
	if err := m.judgeGoesOn(e, tool(id)); err != nil {
		return err
	}
	if m.delegates(id) {
		return broken(7, "a tool call ends before the namespace that it opened")
	}
	return nil
}

// judgeToolFinished is rule 4 and rule 10: no result without a call that was
// made.
func (m *Machine) judgeToolFinished(e Event, d ToolFinished) *ViolationError {
	if err := m.judgeToolEnds(e, d.ToolCallID); err != nil {
		return err
	}
	switch it := m.items[tool(d.ToolCallID)]; {
	case it.named:
		return broken(10, "a tool call finishes while it waits for a decision")
	case it.decision == DecisionReject:
		return broken(10, "a tool call finishes although it was rejected")
	case !it.argumentsComplete(&m.bounds):
		return broken(4, "the joined arguments are not one acceptable JSON object")
	}
	return nil
}

// judgeEntered is rule 7: a namespace opens below an open one, for an open tool
// call there.
func (m *Machine) judgeEntered(e Event, d NamespaceEntered) *ViolationError {
	if len(e.Namespace) == 0 {
		return broken(7, "the root is never entered")
	}
	above := e.Namespace[:len(e.Namespace)-1]
	parent := m.items[tool(d.ParentToolCallID)]
	switch {
	case m.spaces[pathKey(e.Namespace)] != nil:
		return broken(7, "a namespace that is open is entered again")
	case m.spaces[pathKey(above)] == nil:
		return broken(7, "a namespace is entered below one that is not open")
	case parent == nil:
		return broken(7, "a namespace is entered for a tool call that is not open")
	case !parent.anywhere && !slices.Equal(parent.path, above):
		return broken(7, "a namespace is entered for a tool call of another namespace")
	case len(m.spaces)-1 >= m.bounds.OpenNamespaces:
		return broken(0, "more open at once than allowed")
	}
	return nil
}

// judgeExited is rule 7: namespaces nest and balance.
func (m *Machine) judgeExited(e Event, d NamespaceExited) *ViolationError {
	if len(e.Namespace) == 0 {
		return broken(7, "the root is never exited")
	}
	sp := m.spaces[pathKey(e.Namespace)]
	switch {
	case sp == nil:
		return broken(7, "a namespace that is not open is exited")
	case sp.agentID != d.AgentID || sp.parent != d.ParentToolCallID:
		return broken(7, "a namespace is exited by another agent or tool call than entered it")
	case m.occupied(e.Namespace):
		return broken(7, "a namespace is exited with something open in it")
	}
	return nil
}
