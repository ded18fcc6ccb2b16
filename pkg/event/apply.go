package event

import "slices"

// apply takes an event that was judged into the state. It cannot fail.
func (m *Machine) apply(e Event) {
	switch d := e.Data.(type) {
	case TextStarted:
		m.open(itemKey{ItemText, d.MessageID}, &item{path: slices.Clone(e.Namespace)})
	case TextFinished:
		m.end(itemKey{ItemText, d.MessageID})
	case ReasoningStarted:
		m.open(itemKey{ItemReasoning, d.MessageID}, &item{path: slices.Clone(e.Namespace)})
	case ReasoningFinished:
		m.end(itemKey{ItemReasoning, d.MessageID})
	case ToolStarted:
		it := &item{path: slices.Clone(e.Namespace), name: d.ToolName, argumentsDone: !d.Arguments.empty()}
		if it.argumentsDone {
			it.digest, _ = digestOf([]byte(d.Arguments), &m.bounds) // it was judged to be readable
		}
		m.open(tool(d.ToolCallID), it)
	case ToolArgumentsDelta:
		it := m.items[tool(d.ToolCallID)]
		it.arguments = append(it.arguments, d.Delta...)
	case ToolFinished:
		m.end(tool(d.ToolCallID))
	case ToolError:
		m.end(tool(d.ToolCallID))
	case NamespaceEntered:
		m.opened++
		m.spaces[pathKey(e.Namespace)] = &space{
			path: slices.Clone(e.Namespace), order: m.opened, agentID: d.AgentID, parent: d.ParentToolCallID,
		}
	case NamespaceExited:
		delete(m.spaces, pathKey(e.Namespace))
		if d.Outcome == NamespaceInterrupted {
			m.items[tool(d.ParentToolCallID)].suspended = true
		}
	case InterruptRequested:
		m.interrupt = &d
		for _, a := range d.ToolApprovals {
			m.items[tool(a.ToolCallID)].named = true
		}
	default:
		if e.Type().Terminal() {
			m.terminal = &e
		}
	}
}
