package agui

import (
	"slices"

	"cofferdam.dev/pkg/event"
)

// agent is a subagent whose namespace is open.
type agent struct {
	id, parent string // AG-UI ids; parent is "" below the root
	call       string // canonical id of the call that delegates
	agentID    string
	name       string
	namespace  []string
}

func (e *Encoder) entered(namespace []string, p event.NamespaceEntered) {
	a := agent{
		id: e.ids.agent(e.sequence), parent: e.agent(namespace[:len(namespace)-1]), call: p.ParentToolCallID,
		agentID: p.AgentID, name: p.AgentName, namespace: slices.Clone(namespace),
	}
	e.agents[path(namespace)] = a
	e.startAgent(a)
}

func (e *Encoder) startAgent(a agent) {
	f := agentFrame{
		base: e.base("SUBAGENT_STARTED", a.id), Name: a.name, ParentSubagentRunID: a.parent, ParentToolCallID: e.callID(a.call),
	}
	f.Metadata = metadata{"agent_id": a.agentID, "namespace": a.namespace}
	e.put(f)
}

func (e *Encoder) exited(namespace []string, p event.NamespaceExited) {
	id := e.agent(namespace)
	delete(e.agents, path(namespace))
	switch p.Outcome {
	case event.NamespaceSuccess:
		e.put(agentFrame{base: e.base("SUBAGENT_FINISHED", id), Outcome: &outcome{Type: outcomeSuccess}})
	case event.NamespaceInterrupted:
		o := &outcome{Type: "suspended"}
		if e.interrupt != nil && e.interrupt.by == id {
			o.InterruptIDs = e.interrupt.ids()
		}
		e.put(agentFrame{base: e.base("SUBAGENT_FINISHED", id), Outcome: o})
	case event.NamespaceCancelled:
		e.put(agentFrame{base: e.base("SUBAGENT_ERROR", id), Message: "The subagent was cancelled.", Code: "cancelled"})
	case event.NamespaceError:
		e.put(agentFrame{base: e.base("SUBAGENT_ERROR", id), Message: "The subagent failed."})
	}
}
